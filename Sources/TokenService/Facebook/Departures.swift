import Cryptography
import HTTP
import JSON
import Synchronization
package import TokenStore

/// Somebody who has removed the app at Facebook, or has asked there that the app's data be deleted.
struct Departure: Sendable {
    /// As in `SignedRequest`.
    let user: String
    /// When Facebook said so, and when this server noted it; in seconds since 1970.
    let issuedAt: Int64
    let notedAt: Int64
    /// Tokens with smaller versions were stored before it was noted; nil for the version of the list to which it is being added.
    let version: TokenVersion?
    /// Whether the user for whom the token is stored is erased, as by the API; otherwise only the token is removed.
    let erases: Bool

    init(_ message: SignedRequest, erases: Bool, notedAt: Int64) {
        (user, issuedAt, self.erases) = (message.user, message.issuedAt, erases)
        (self.notedAt, version) = (notedAt, nil)
    }

    /// Reads a line of the list; nil if it is not one.
    ///
    /// - Parameter version: The version of the list.
    init?(_ line: Substring, in version: TokenVersion) {
        let words = line.split(separator: " ")
        guard words.count == 5, SignedRequest.isUser(words[0].utf8), let issuedAt = Int64(words[1]),
            let notedAt = Int64(words[2])
        else { return nil }
        (user, erases) = (String(words[0]), words[4] == "erase")
        (self.issuedAt, self.notedAt) = (issuedAt, notedAt)
        self.version = Int64(words[3]).map { TokenVersion(rawValue: $0) } ?? version
    }

    /// The line of the list.
    var line: String {
        "\(user) \(issuedAt) \(notedAt) \(version?.description ?? "-") \(erases ? "erase" : "remove")\n"
    }

    // MARK: - Code

    /// The code with which the person may ask later what became of it: 48 hexadecimal digits that only the server can make.
    func code(_ secret: SecretKey) -> String {
        let salt = KeyedHash(secret).mac(of: Array("salt \(user) \(issuedAt)".utf8).span)
        return Self.code(of: notedAt, salt.prefix(4), secret)
    }

    private static func code(of time: Int64, _ salt: ArraySlice<UInt8>, _ secret: SecretKey) -> String {
        let head = (0..<8).map { UInt8(truncatingIfNeeded: time >> (56 - 8 * $0)) } + salt
        return Hexadecimal.text(head + KeyedHash(secret).mac(of: (Array("code ".utf8) + head).span).prefix(12))
    }

    /// When the departure of a code was noted, in seconds since 1970; nil for a code that the server has not made.
    static func time(ofCode code: [UInt8], _ secret: SecretKey) -> Int64? {
        guard let bytes = Hexadecimal.decode(code), bytes.count == 24 else { return nil }
        let time = bytes[..<8].reduce(Int64(0)) { $0 << 8 | Int64($1) }
        let made = Array(self.code(of: time, bytes[8..<12], secret).utf8)
        return ConstantTime.areEqual(made.span, Hexadecimal.text(bytes).utf8.span) ? time : nil
    }
}

/// The people who have left the app at Facebook, and whose tokens the walk over the store finds.
///
/// No index finds tokens by their users at Facebook. Instead, the walk opens every token anyway and shows it to this object, which
/// checks whether the user has left. The list of those who have is itself a token, under an id that no client can have: so it is
/// durable, encrypted, backed up and copied like any token, and shared by all servers of a database.
///
/// A departure stays in the list until the end of a round of the walk that began at least a day after it was noted. By then, at least
/// one whole round has looked for the person's tokens. And because messages older than a day are refused, one that is sent again
/// finds its departure in the list, and changes nothing.
///
/// Any thread.
package final class Departures: TokenInspector {
    /// A token of somebody who has left.
    private struct Found: Sendable {
        let id: [UInt8]
        let version: TokenVersion
        let erases: Bool
    }

    private struct State {
        /// The list as it was last read, by user; nil before that.
        var known: [String: Departure]?
        /// The version of that list.
        var version: TokenVersion?
        /// Whether the next round is to begin at once, for departures that no round has looked for yet.
        var isHurried = false
    }

    private let state = Mutex(State())
    /// The latest change of the list that was asked for.
    private let change = Mutex<Task<Void, Never>?>(nil)
    private let found: AsyncStream<Found>
    private let continuation: AsyncStream<Found>.Continuation

    /// The id of the list; ids of clients do not contain NUL.
    package static let listID: [UInt8] = [0] + Array("departures".utf8)
    /// Departures in the list at most, of some 70 bytes each.
    private static let limit = 10_000
    /// How often a change is tried while others change the list at the same time.
    private static let attempts = 50
    /// How long a departure stays in the list at least, in seconds.
    private static let shortestStay = SignedRequest.tolerance
    /// How often the list is read, which other servers change too, and the shortest time between two hurried rounds.
    private static let interval = Duration.seconds(60)
    /// The number of tokens and sessions up to which a round begins at once: it takes a few seconds.
    private static let smallStore = 100_000

    package init() {
        // The next round finds again what does not fit.
        (found, continuation) = AsyncStream.makeStream(bufferingPolicy: .bufferingOldest(1_000))
    }

    // MARK: - The walk

    /// Checks whether the user of a token has left since it was stored.
    package func inspect(
        _ id: Span<UInt8>, _ tokenInfo: Span<UInt8>, _ version: TokenVersion, _ times: RowTimes
    ) -> Bool {
        let (isKnown, isEmpty) = state.withLock { ($0.known != nil, $0.known?.isEmpty ?? true) }
        guard !isEmpty, let user = Self.user(of: tokenInfo), let departure = state.withLock({ $0.known?[user] }),
            // A mark of the refresher gives the same token a new version, and keeps its time.
            departure.version.map({ version < $0 }) ?? true || times.writtenAt < departure.notedAt
        else { return isKnown }
        let token = Found(id: id.bytes(0..<id.count), version: version, erases: departure.erases)
        if case .dropped = continuation.yield(token) { state.withLock { $0.isHurried = true } }
        return isKnown
    }

    private static let member = Array("TokenInformationUserFBIDKey\"".utf8)
    /// What may stand between the name and the number.
    private static let separators = Array(" :\"".utf8)

    /// The user's id in a token info with the keys of Facebook's SDK, as a string or a number; nil if it has none.
    static func user(of tokenInfo: Span<UInt8>) -> String? {
        var index = 0
        while let quote = tokenInfo.firstIndex(of: UInt8(ascii: "\""), in: index..<tokenInfo.count) {
            index = quote + 1
            guard index >= member.count, tokenInfo.equals(ByteRange(index - member.count, index), member) else {
                continue
            }
            while index < tokenInfo.count, separators.contains(tokenInfo[index]) { index += 1 }
            let digits = tokenInfo.extracting(index...)
            let end = digits.indices.first { !(UInt8(ascii: "0")...UInt8(ascii: "9")).contains(digits[$0]) }
            let user = digits.bytes(0..<min(end ?? digits.count, 64))
            return SignedRequest.isUser(user) ? String(decoding: user, as: UTF8.self) : nil
        }
        return nil
    }

    /// Removes what the walk finds, and keeps up with the list, until its task is cancelled.
    ///
    /// - Parameters:
    ///   - store: The store.
    ///   - note: Called with the outcome for each token that was found: the user, and whether the user was to be erased.
    package func run(
        on store: any StoreAdministrator,
        note: @escaping @Sendable (_ user: [UInt8], _ isErased: Bool, _ error: StoreError?) async -> Void
    ) async {
        await withTaskGroup { group in
            group.addTask { [self] in
                for await token in found { await carryOut(token, in: store.handle, note) }
            }
            group.addTask { [self] in
                var (lastLook, lastRound) = (ContinuousClock.Instant?.none, ContinuousClock.Instant?.none)
                func isDue(_ last: ContinuousClock.Instant?) -> Bool { last.map { .now - $0 >= Self.interval } ?? true }
                repeat {
                    if isDue(lastLook) {
                        lastLook = .now
                        // If the store does not answer, the former list is used on.
                        if let list = try? await read(store.handle) { learn(list, hurries: false) }
                    }
                    if isDue(lastRound), state.withLock({ $0.isHurried }) {
                        lastRound = .now
                        await hurry(store)
                    }
                } while (try? await Task.sleep(for: .seconds(1))) != nil
            }
        }
    }

    /// Removes a token, unless it was replaced after the walk had found it.
    private func carryOut(
        _ token: Found, in handle: WaitingHandle,
        _ note: (_ user: [UInt8], _ isErased: Bool, _ error: StoreError?) async -> Void
    ) async {
        do {
            if token.erases {
                // The token is removed by the erasure only: if that fails, the next round must find the token again.
                guard try await handle.find(token.id)?.version == token.version else { return }
                let _: Erasure = try await handle.outcome { (handle, completion) in
                    handle.erase(token.id, completion: completion)
                }
            } else {
                let wasThere: Bool = try await handle.outcome { (handle, completion) in
                    handle.remove(
                        token.id, if: WriteCondition(match: .oneOf([token.version])), completion: completion)
                }
                guard wasThere else { return }
            }
            await note(token.id, token.erases, nil)
        } catch .preconditionFailed {
            // Somebody has logged in since, or the token is gone.
        } catch {
            // The next round finds the token again.
            await note(token.id, token.erases, error)
        }
    }

    /// Walks over a small store at once; in a large one, the walk goes on with its usual pauses.
    private func hurry(_ store: any StoreAdministrator) async {
        state.withLock { $0.isHurried = false }
        // A round counts only for departures that were noted in an earlier second than the one in which it begins.
        try? await Task.sleep(for: .seconds(1))
        do {
            guard let rows = try await store.statistics().walk?.progress.total, rows <= Self.smallStore else { return }
            _ = try await store.walk { _ in }
        } catch {
            state.withLock { $0.isHurried = true }
        }
    }

    // MARK: - The list

    /// Notes that somebody has left.
    ///
    /// A message that is sent again changes nothing.
    ///
    /// - Returns: The departure, which is in the list durably.
    func note(
        _ message: SignedRequest, erases: Bool, in store: any StoreAdministrator
    ) async throws(StoreError) -> Departure {
        // One after the other, as each changes the same list.
        let work = change.withLock { [self] latest in
            let work = Task { [latest] () async -> Result<Departure, StoreError> in
                await latest?.value
                do throws(StoreError) {
                    return .success(try await add(message, erases: erases, in: store))
                } catch {
                    return .failure(error)
                }
            }
            latest = Task { _ = await work.value }
            return work
        }
        return try await work.value.get()
    }

    private func add(
        _ message: SignedRequest, erases: Bool, in store: any StoreAdministrator
    ) async throws(StoreError) -> Departure {
        for _ in 0..<Self.attempts {
            var list = try await read(store.handle)
            let known = list.departures.first { $0.user == message.user }
            if let known, known.issuedAt >= message.issuedAt, known.erases || !erases { return known }
            let departure = Departure(
                message, erases: erases || known?.erases ?? false, notedAt: try await store.handle.unixTime)
            let finished = try await Self.beginningOfLastRound(of: store) ?? .min
            list.departures.removeAll {
                $0.user == message.user || max($0.notedAt, $0.issuedAt) + Self.shortestStay < finished
            }
            guard list.departures.count < Self.limit else {
                throw .refused("\(Self.limit) people who have left Facebook's app wait for the walk over the store")
            }
            list.departures.append(departure)
            do {
                try await write(list, store.handle)
                // Read again, as the list that was written has its version only now.
                learn(try await read(store.handle), hurries: true)
                return departure
            } catch {
                // Another server has changed the list meanwhile.
                guard case .preconditionFailed = error else { throw error }
            }
        }
        throw .refused("too many people have left Facebook's app at the same time")
    }

    /// When the last round began; nil if there was none, or if it has not shown all tokens to an inspector.
    static func beginningOfLastRound(of store: any StoreAdministrator) async throws(StoreError) -> Int64? {
        try await store.statistics().walk?.last.flatMap { $0.hasPassedOver == true ? nil : $0.beganAt }
    }

    /// Takes over a list, unless a later one is known.
    ///
    /// - Parameter hurries: Whether a departure is new in it. After a start, any may be.
    private func learn(_ list: List, hurries: Bool) {
        let known = Dictionary(list.departures.map { ($0.user, $0) }) { $1 }
        state.withLock { state in
            if let later = state.version, list.version.map({ $0 < later }) ?? true { return }
            if hurries || state.known == nil && !known.isEmpty { state.isHurried = true }
            (state.known, state.version) = (known, list.version)
        }
    }

    private struct List {
        var departures: [Departure] = []
        /// Nil if nothing is stored yet.
        var version: TokenVersion?
    }

    private func read(_ handle: WaitingHandle) async throws(StoreError) -> List {
        guard let found = try await handle.find(Self.listID) else { return List() }
        let lines = String(decoding: found.info, as: UTF8.self).split(separator: "\n")
        return List(departures: lines.compactMap { Departure($0, in: found.version) }, version: found.version)
    }

    private func write(_ list: List, _ handle: WaitingHandle) async throws(StoreError) {
        let text = Array(list.departures.map(\.line).joined().utf8)
        let condition = WriteCondition(match: list.version.map { .oneOf([$0]) } ?? .missing)
        let _: TokenVersion = try await handle.outcome { (handle, completion) in
            handle.store(text, under: Self.listID, if: condition, completion: completion)
        }
    }
}
