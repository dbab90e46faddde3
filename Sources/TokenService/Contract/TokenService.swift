internal import Cryptography
internal import Glibc
package import HTTP
package import TokenStore

/// The contract of `token.php`: answers requests by one handle of the store.
///
/// Belongs to one loop's thread.
package final class TokenService {
    /// What the contract leaves to the operator.
    package struct Settings: Sendable {
        /// The paths that are answered; all others get 404.
        package var paths: [String]
        /// Whether `application/json` bodies carry fields.
        package var readsJSON: Bool

        package init(paths: [String] = ["/token", "/token.php"], readsJSON: Bool = false) {
            self.paths = paths
            self.readsJSON = readsJSON
        }
    }

    /// Longest unique id in bytes, decoded and with tags removed.
    package static let uniqueIDLimit = 1024

    private let paths: [[UInt8]]
    private let readsJSON: Bool
    private let handle: any StoreHandle
    /// Nil without a cache.
    private let answers: AnswerCache?
    /// Called for every failed read and write; the client only gets the contract's code.
    private let report: (StoreError, _ requestID: RequestID) -> Void
    /// Called when the store is read because the answer is not cached.
    private let noteRead: () -> Void
    /// Reused for the parameters of each request.
    ///
    /// Swapped out while it is used: a property of a class that changes without a call in between needs no exclusivity check.
    private var fields = RequestFields()
    /// The last answer from the cache; its memory is reused for the next one once it has been sent.
    ///
    /// Swapped out while it is used, like `fields`.
    private var answerBuffer: [UInt8] = []

    /// - Parameters:
    ///   - settings: What the operator decides.
    ///   - handle: The loop's.
    ///   - answers: An observer of the handle's store; nil for a store that does not see all writes.
    ///   - report: Called for every failed read and write.
    ///   - noteRead: Called for every read of the store that a GET begins.
    package init(
        settings: Settings, handle: any StoreHandle, answers: AnswerCache?,
        report: @escaping (StoreError, _ requestID: RequestID) -> Void, noteRead: @escaping () -> Void = {}
    ) {
        paths = settings.paths.map { Array($0.utf8) }
        readsJSON = settings.readsJSON
        self.handle = handle
        self.answers = answers
        self.report = report
        self.noteRead = noteRead
    }

    /// Token infos of up to this many bytes are read and answered at once; longer ones are long work.
    ///
    /// Escaping for JSON makes them at most six times as long.
    package static let shortTokenInfo = 16 << 10

    /// Answers a request, now or later.
    ///
    /// - Parameters:
    ///   - request: A request whose ranges refer to `bytes`.
    ///   - bytes: The request's bytes.
    ///   - requestID: For reports.
    package func answer(to request: Request, in bytes: Span<UInt8>, requestID: RequestID = .none) -> Answer {
        guard isKnown(request.head.path, of: request.head.method, in: bytes) else {
            return .now(Self.error(.notFound, "There is nothing at this path."))
        }
        switch request.head.method {
        case .get: return get(request, in: bytes, requestID)
        case .post:
            let (uniqueID, tokenInfo) = read(request, in: bytes)
            return post(tokenInfo, under: uniqueID, requestID)
        case .head: return .now(Response(body: []))
        case .put, .patch, .delete, .options, .trace, .connect, .other:
            return .now(answer(.unsupportedMethod([UInt8](request.head.methodName, in: bytes))))
        }
    }

    /// The answer to a request that could not be read.
    package func answer(_ refusal: Refusal) -> Response {
        Self.error(refusal.status, refusal.message)
    }

    /// Whether a path is answered; `*` stands for the server itself (RFC 9110, section 9.3.7).
    package func isKnown(_ path: ByteRange, of method: Method, in bytes: Span<UInt8>) -> Bool {
        for known in paths where bytes.equals(path, known) { return true }
        // In a proxy's form, http://host stands for `*` with OPTIONS and for / otherwise (RFC 9112, section 3.2.4).
        if path.isEmpty { return method == .options || paths.contains([UInt8(ascii: "/")]) }
        return method == .options && bytes.equals(path, "*")
    }

    // MARK: - Methods

    private func read(_ request: Request, in bytes: Span<UInt8>) -> (uniqueID: [UInt8]?, tokenInfo: [UInt8]?) {
        var fields = RequestFields()
        swap(&fields, &self.fields)
        defer { swap(&fields, &self.fields) }
        return fields.read(request, in: bytes, readsJSON: readsJSON)
    }

    private func get(_ request: Request, in bytes: Span<UInt8>, _ requestID: RequestID) -> Answer {
        if let literal = Self.literalID(request, in: bytes) {
            if let cached = cachedAnswer(to: bytes.extracting(literal.indices)) { return .now(cached) }
            return fetch([UInt8](literal, in: bytes), requestID)
        }
        guard let id = read(request, in: bytes).uniqueID.flatMap(Self.storedID) else {
            return .now(answer(.invalidInput))
        }
        if let cached = cachedAnswer(to: id.span) { return .now(cached) }
        return fetch(id, requestID)
    }

    /// The range of a GET's id, if the id needs neither decoding nor tag removal: as most do not, it is looked up in place.
    static func literalID(_ request: Request, in bytes: Span<UInt8>) -> ByteRange? {
        guard let id = RequestFields.uniqueID(in: request.head.query, of: bytes), !id.isEmpty,
            id.count <= uniqueIDLimit,
            bytes.all(id.indices, in: .literal)
        else { return nil }
        return id
    }

    private func post(_ tokenInfo: [UInt8]?, under uniqueID: [UInt8]?, _ requestID: RequestID) -> Answer {
        guard let tokenInfo, Self.isUTF8(tokenInfo), let id = uniqueID.flatMap(Self.storedID) else {
            return .now(answer(.invalidInput))
        }
        return .later(PendingWrite(self, TagRemoval.removeTags(from: tokenInfo), under: id, requestID))
    }

    // MARK: - The store

    /// The answer from the cache, if it is there.
    private func cachedAnswer(to id: Span<UInt8>) -> Response? {
        guard let answers else { return nil }
        var body: [UInt8] = []
        swap(&body, &answerBuffer)
        body.removeAll(keepingCapacity: body.capacity <= Self.largestKeptBuffer)
        let isFound = answers.find(id, at: Int64(time(nil))) { body.append(span: $0) }
        answerBuffer = body
        return isFound ? Response(body: body) : nil
    }

    /// Bytes up to which `answerBuffer` is kept for the next answer.
    private static let largestKeptBuffer = 64 << 10

    private func fetch(_ id: [UInt8], _ requestID: RequestID) -> Answer {
        noteRead()
        // Before the store is read.
        let ticket = answers?.ticket(for: id.span)
        var pending: PendingRead?
        do throws(StoreError) {
            let fetched = try handle.fetch(id, upTo: Self.shortTokenInfo) {
                let read = PendingRead(self, id, ticket, requestID)
                pending = read
                return { read.finish($0) }
            }
            if let fetched { return answer(to: id, ticket, requestID, fetched) }
        } catch {
            return .now(readFailed(error, requestID))
        }
        guard let pending else { preconditionFailure("an outcome that comes later needs a completion") }
        return .later(pending)
    }

    /// The answer to a read that has come to an end.
    func answer(
        to id: [UInt8], _ ticket: AnswerCache.Ticket?, _ requestID: RequestID, _ outcome: Result<Fetched, StoreError>
    ) -> Answer {
        switch outcome {
        case .success(let fetched): answer(to: id, ticket, requestID, fetched)
        case .failure(let error): .now(readFailed(error, requestID))
        }
    }

    private func answer(
        to id: [UInt8], _ ticket: AnswerCache.Ticket?, _ requestID: RequestID, _ fetched: Fetched
    ) -> Answer {
        switch fetched {
        case .nothing: return .now(answer(.notFound))
        case .longer: return .later(PendingLongRead(self, id, requestID))
        case .found(let tokenInfo, let deadline, _):
            var body: [UInt8] = []
            ContractAnswer.appendFound(tokenInfo, to: &body)
            if let ticket { answers?.insert(body.span, under: id.span, ticket, until: deadline) }
            return .now(Response(body: body))
        }
    }

    /// Reads a long token info, which takes some milliseconds for each MiB.
    func fetchLong(_ id: [UInt8], completion: @escaping StoreHandle.FetchCompletion) {
        do throws(StoreError) {
            if let fetched = try handle.fetch(id, upTo: .max, orLater: { completion }) {
                completion(.success(fetched))
            }
        } catch {
            completion(.failure(error))
        }
    }

    /// The answer to a read of `fetchLong`.
    func answer(toLong requestID: RequestID, _ outcome: Result<Fetched, StoreError>) -> Answer {
        switch outcome {
        // It was long a moment ago: now there is nothing, or the store does not do what it was asked for.
        case .success(.nothing), .success(.longer): .now(answer(.notFound))
        case .success(.found(let tokenInfo, _, _)): .inPieces(LongAnswer(tokenInfo))
        case .failure(let error): .now(readFailed(error, requestID))
        }
    }

    /// Hands a token info to the store.
    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], completion: @escaping (Result<TokenVersion, StoreError>) -> Void
    ) {
        handle.store(tokenInfo, under: id, if: WriteCondition(), completion: completion)
    }

    /// How long a client waits for the store; nil if it waits until the store gives the outcome.
    var timeLimit: Duration? { handle.timeLimit }

    var stored: Response { answer(.stored) }

    /// Reports a failed read and returns its answer.
    func readFailed(_ error: StoreError, _ requestID: RequestID) -> Response {
        report(error, requestID)
        return answer(.notFound)
    }

    /// Reports a failed write and returns its answer.
    func writeFailed(_ error: StoreError, _ requestID: RequestID) -> Response {
        report(error, requestID)
        return answer(.writeFailed)
    }

    private func answer(_ answer: ContractAnswer) -> Response {
        Response(body: answer.json, code: answer.code)
    }

    private static func error(_ status: Status, _ message: String) -> Response {
        Response(status: status, body: ContractAnswer.httpError(status: status.rawValue, message: message).json)
    }

    // MARK: - Values

    /// The id as it is stored, with its tags removed; nil when it is not UTF-8, holds NUL, or is then empty or too long.
    package static func storedID(_ uniqueID: [UInt8]) -> [UInt8]? {
        guard isUTF8(uniqueID), uniqueID.span.firstIndex(of: 0, in: 0..<uniqueID.count) == nil else { return nil }
        let key = TagRemoval.removeTags(from: uniqueID)
        return key.isEmpty || key.count > uniqueIDLimit ? nil : key
    }

    private static func isUTF8(_ bytes: [UInt8]) -> Bool {
        (try? UTF8Span(validating: bytes.span)) != nil
    }
}
