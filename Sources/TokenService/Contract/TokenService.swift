import Cryptography
import Glibc
package import HTTP
package import TokenStore

/// The contract of `token.php`: answers requests by one handle of the store.
///
/// Belongs to one loop's thread.
package final class TokenService {
    private let paths: [[UInt8]]
    private let readsJSON: Bool
    let handle: any StoreHandle
    /// Nil without a cache.
    private let answers: AnswerCache?
    /// Called for every failed read and write; the client only gets the contract's code.
    private let report: (StoreError, _ requestID: RequestID) -> Void
    /// Called when the store is read because the answer is not cached.
    private let noteRead: () -> Void
    /// The last answer from the cache; its memory is reused for the next one once it has been sent.
    ///
    /// Swapped out while it is used: a property of a class that changes without a call in between needs no exclusivity check.
    private var answerBuffer: [UInt8] = []

    /// - Parameters:
    ///   - paths: The paths that are answered; all others get 404.
    ///   - readsJSON: Whether `application/json` bodies carry fields.
    ///   - handle: The loop's.
    ///   - answers: An observer of the handle's store; nil for a store that does not see all writes.
    ///   - report: Called for every failed read and write.
    ///   - noteRead: Called for every read of the store that a GET begins.
    package init(
        paths: [String], readsJSON: Bool, handle: any StoreHandle, answers: AnswerCache?,
        report: @escaping (StoreError, _ requestID: RequestID) -> Void, noteRead: @escaping () -> Void = {}
    ) {
        self.paths = paths.map { Array($0.utf8) }
        self.readsJSON = readsJSON
        self.handle = handle
        self.answers = answers
        self.report = report
        self.noteRead = noteRead
    }

    /// Token infos of up to this many bytes are read and answered at once; longer ones are long work.
    ///
    /// Escaping for JSON makes them at most six times as long.
    package static let shortTokenInfo = 16 << 10

    /// Answers a request as `token.php` does, without the token's version, now or later.
    ///
    /// - Parameters:
    ///   - request: A request whose ranges refer to `bytes`.
    ///   - bytes: The request's bytes.
    ///   - requestID: For reports.
    package func answer(to request: Request, in bytes: Span<UInt8>, requestID: RequestID = .none) -> Answer {
        guard isKnown(request.head.path, of: request.head.method, in: bytes) else {
            return .now(Response(.notFound, "There is nothing at this path."))
        }
        switch request.head.method {
        case .get: return get(request, in: bytes, requestID)
        case .post:
            let fields = read(request, in: bytes)
            return post(fields.tokenInfo, under: fields.uniqueID, requestID)
        case .head: return .now(Response(body: []))
        case .put, .patch, .delete, .options, .trace, .connect, .other:
            return .now(.unsupportedMethod([UInt8](request.head.methodName, in: bytes)))
        }
    }

    /// Whether a path is answered; `*` stands for the server itself (RFC 9110, section 9.3.7).
    func isKnown(_ path: ByteRange, of method: Method, in bytes: Span<UInt8>) -> Bool {
        for known in paths where bytes.equals(path, known) { return true }
        // In a proxy's form, http://host stands for `*` with OPTIONS and for / otherwise (RFC 9112, section 3.2.4).
        if path.isEmpty { return method == .options || paths.contains([UInt8(ascii: "/")]) }
        return method == .options && bytes.equals(path, "*")
    }

    // MARK: - Methods

    func read(_ request: Request, in bytes: Span<UInt8>) -> RequestFields {
        RequestFields(request, in: bytes, readsJSON: readsJSON)
    }

    private func get(_ request: Request, in bytes: Span<UInt8>, _ requestID: RequestID) -> Answer {
        guard let value = RequestFields.uniqueID(in: request.head.query, of: bytes), !value.isEmpty else {
            return .now(.invalidInput)
        }
        // Most ids need neither decoding nor tag removal, and are looked up in place.
        if value.count <= UniqueID.limit, bytes.all(value.indices, in: .literal) {
            if let cached = cachedAnswer(to: bytes.extracting(value.indices), showsVersion: false) {
                return .now(cached)
            }
            return fetch(StoredRead(id: [UInt8](value, in: bytes), requestID: requestID, showsVersion: false))
        }
        guard let id = UniqueID(URLEncodedForm.decoded(value, of: bytes)).text else { return .now(.invalidInput) }
        return fetch(id, requestID, showsVersion: false)
    }

    /// The answer to a GET of an id.
    ///
    /// - Parameter showsVersion: Whether the answer shows the version of the token, as those of the API and for users do.
    func fetch(_ id: [UInt8], _ requestID: RequestID, showsVersion: Bool = true) -> Answer {
        if let cached = cachedAnswer(to: id.span, showsVersion: showsVersion) { return .now(cached) }
        return fetch(StoredRead(id: id, requestID: requestID, showsVersion: showsVersion))
    }

    private func post(_ tokenInfo: [UInt8]?, under uniqueID: [UInt8]?, _ requestID: RequestID) -> Answer {
        guard let tokenInfo, UniqueID.isUTF8(tokenInfo), let id = UniqueID(uniqueID).text else {
            return .now(.invalidInput)
        }
        return store(tokenInfo, under: id, if: WriteCondition(), requestID, showsVersion: false) { _ in nil }
    }

    /// The answer to a POST, or another write, of a token info under an id.
    ///
    /// - Parameters:
    ///   - showsVersion: As for `fetch`.
    ///   - refusal: The answer to an error of the client's; nil for an error of the store, which is reported.
    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], if condition: WriteCondition, _ requestID: RequestID,
        showsVersion: Bool = true, refusal: @escaping (StoreError) -> Response?
    ) -> Answer {
        .later(
            PendingAnswer(
                storing: TagRemoval.removeTags(from: tokenInfo), under: id, if: condition, self, requestID,
                showsVersion: showsVersion, refusal: refusal))
    }

    // MARK: - The store

    /// The answer from the cache, if it is there.
    private func cachedAnswer(to id: Span<UInt8>, showsVersion: Bool) -> Response? {
        guard let answers else { return nil }
        var body: [UInt8] = []
        swap(&body, &answerBuffer)
        body.removeAll(keepingCapacity: body.capacity <= Self.largestKeptBuffer)
        let version = answers.find(id, at: Int64(time(nil))) { body.append(span: $0) }
        answerBuffer = body
        guard let version else { return nil }
        return Response(body: body, version: showsVersion ? version : nil)
    }

    /// Bytes up to which `answerBuffer` is kept for the next answer.
    private static let largestKeptBuffer = 64 << 10

    /// A GET that is answered from the store.
    struct StoredRead {
        let id: [UInt8]
        /// A session that must exist when the token is read; nil for none.
        var session: SessionKey?
        let requestID: RequestID
        /// As for `fetch`.
        var showsVersion = true
        /// As for `store`.
        var refusal: (StoreError) -> Response? = { _ in nil }
    }

    func fetch(_ read: StoredRead) -> Answer {
        noteRead()
        // Before the store is read.
        let ticket = answers?.ticket(for: read.id.span)
        var pending: PendingAnswer?
        do {
            let fetched = try handle.fetch(read.id, upTo: Self.shortTokenInfo, if: read.session) {
                let waiting = waiting(for: read)
                pending = waiting
                return waiting.completion { [self] in answer(to: read, ticket, $0) }
            }
            if let fetched { return answer(to: read, ticket, fetched) }
        } catch {
            return .now(failed(read, error))
        }
        guard let pending else { preconditionFailure("an outcome that comes later needs a completion") }
        return .later(pending)
    }

    private func waiting(
        for read: StoredRead, bytes: Int = 0, takesLong: Bool = false, work: ((PendingAnswer) -> Void)? = nil
    ) -> PendingAnswer {
        PendingAnswer(
            bytes: bytes + Token.waitingBytes(id: read.id, info: []), timeLimit: timeLimit, takesLong: takesLong,
            failure: { [self] in failed(read, $0) }, work: work)
    }

    private func failed(_ read: StoredRead, _ error: StoreError) -> Response {
        read.refusal(error) ?? failed(error, read.requestID, isWrite: false)
    }

    private func answer(to read: StoredRead, _ ticket: ChangeVersions.Ticket?, _ fetched: Fetched) -> Answer {
        switch fetched {
        case .nothing: return .now(.notFound)
        case .longer: return fetchLong(read)
        case .found(let tokenInfo, _, let deadline, let version):
            var body: [UInt8] = []
            FoundAnswer.append(tokenInfo, to: &body)
            if let ticket {
                answers?.insert(body.span, under: read.id.span, ticket, until: deadline, version: version.rawValue)
            }
            return .now(Response(body: body, version: read.showsVersion ? version.rawValue : nil))
        case .unrefreshed(let tokenInfo, let version, let advice):
            var body: [UInt8] = []
            FoundAnswer.append(tokenInfo, to: &body)
            var response = Response(body: body, version: read.showsVersion ? version.rawValue : nil)
            response.extras = Response.Extras(tokenRefresh: advice.rawValue)
            return .now(response)
        }
    }

    /// Reads a long token info, which takes some milliseconds for each MiB, in the part of a turn that is meant for that.
    private func fetchLong(_ read: StoredRead) -> Answer {
        .later(
            waiting(for: read, takesLong: true) { [self] pending in
                let completion = pending.completion { [self] (fetched: Fetched) in
                    // It was long a moment ago: otherwise there is nothing now, or the store does not do what it was asked for.
                    guard case .found(let tokenInfo, _, _, let version) = fetched else { return .now(.notFound) }
                    let answer = LongAnswer(tokenInfo, version: read.showsVersion ? version.rawValue : nil)
                    return measured(answer, for: read)
                }
                do throws(StoreError) {
                    let fetched = try handle.fetch(read.id, upTo: .max, if: read.session, orLater: { completion })
                    if let fetched { completion(.success(fetched)) }
                } catch {
                    completion(.failure(error))
                }
            })
    }

    /// Measures a long answer, one step at a time.
    private func measured(_ answer: consuming LongAnswer, for read: StoredRead) -> Answer {
        if answer.measure() { return .inPieces(answer) }
        let rest = answer
        return .later(
            waiting(for: read, bytes: rest.capacity, takesLong: true) { [self] in
                $0.finish(measured(rest, for: read))
            })
    }

    /// How long a client waits for the store; nil if it waits until the store gives the outcome.
    var timeLimit: Duration? { handle.timeLimit }

    /// Reports a failed operation of the API and returns its answer.
    func operationFailed(_ error: StoreError, _ requestID: RequestID) -> Response {
        report(error, requestID)
        return Response(.unavailable, "The store cannot do this at the moment.")
    }

    /// Reports a failed read or write of the contract and returns its answer.
    func failed(_ error: StoreError, _ requestID: RequestID, isWrite: Bool) -> Response {
        report(error, requestID)
        return .failure(isWrite: isWrite)
    }
}
