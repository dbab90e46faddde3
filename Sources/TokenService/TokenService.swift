package import HTTP
package import TokenStore

/// The contract of `token.php`: requests in, answers out, over one session of the store.
///
/// Belongs to one loop's thread.
package final class TokenService {
    /// What the contract leaves to the operator.
    package struct Settings: Sendable {
        /// Paths that answer; every other one is 404.
        package var paths: [String]
        /// Whether `application/json` bodies carry fields.
        package var readsJSON: Bool

        package init(paths: [String] = ["/token", "/token.php"], readsJSON: Bool = false) {
            self.paths = paths
            self.readsJSON = readsJSON
        }
    }

    /// Longest unique id in bytes, decoded and with tags removed.
    static let uniqueIDLimit = 1024

    private let paths: [[UInt8]]
    private let readsJSON: Bool
    private let session: any TokenSession
    /// Told of every read and write that failed; the client only learns the contract's code.
    private let report: (StoreError) -> Void
    /// Bodies whose room is used again; see `recycle`.
    private var spareBodies: [[UInt8]] = []

    package init(settings: Settings, session: any TokenSession, report: @escaping (StoreError) -> Void) {
        paths = settings.paths.map { Array($0.utf8) }
        readsJSON = settings.readsJSON
        self.session = session
        self.report = report
    }

    /// Answers a request.
    ///
    /// - Parameters:
    ///   - request: A request whose ranges refer to `bytes`.
    ///   - bytes: The request's bytes, which stay until this returns.
    package func answer(_ request: Request, in bytes: Span<UInt8>) async -> Response {
        guard isKnown(request.head.path, of: request.head.method, in: bytes) else {
            return Self.error(.notFound, "There is nothing at this path.")
        }
        switch request.head.method {
        case .get: return await get(RequestFields(of: request, in: bytes, readsJSON: readsJSON))
        case .post: return await post(RequestFields(of: request, in: bytes, readsJSON: readsJSON))
        case .head: return Response(body: [])
        case .connect, .options, .other:
            return answer(.unsupportedMethod([UInt8](request.head.methodName, in: bytes)))
        }
    }

    /// The answer to a request that could not be read.
    package func answer(_ refusal: Refusal) -> Response {
        Self.error(refusal.status, refusal.message)
    }

    /// Whether a path is one that answers; `*` is the server itself (RFC 9110, section 9.3.7).
    package func isKnown(_ path: ByteRange, of method: Method, in bytes: Span<UInt8>) -> Bool {
        for known in paths where bytes.equals(path, known) { return true }
        return method == .options && path.count == 1 && bytes[Int(path.start)] == UInt8(ascii: "*")
    }

    /// Takes back a body that has been sent, so that the next one needs no allocation.
    package func recycle(_ body: consuming [UInt8]) {
        guard body.capacity >= 256, body.capacity <= 1 << 16, spareBodies.count < 16 else { return }
        body.removeAll(keepingCapacity: true)
        spareBodies.append(body)
    }

    // MARK: - Methods

    private func get(_ fields: RequestFields) async -> Response {
        guard let uniqueID = fields.uniqueID.flatMap(Self.checkedID) else { return answer(.invalidInput) }
        var tokenInfo = spareBodies.popLast() ?? []
        do throws(StoreError) {
            guard try await session.fetch(uniqueID, appendingTo: &tokenInfo) else {
                recycle(tokenInfo)
                return answer(.notFound)
            }
        } catch {
            report(error)
            return answer(.notFound)
        }
        var body = spareBodies.popLast() ?? []
        ContractAnswer.appendFound(tokenInfo, to: &body)
        recycle(tokenInfo)
        return Response(body: body)
    }

    private func post(_ fields: RequestFields) async -> Response {
        guard let uniqueID = fields.uniqueID, let tokenInfo = fields.tokenInfo, Self.isUTF8(tokenInfo),
            let key = Self.checkedID(uniqueID)
        else { return answer(.invalidInput) }
        do throws(StoreError) {
            try await session.store(TagRemoval.removeTags(from: tokenInfo), under: key)
        } catch {
            report(error)
            return answer(.writeFailed)
        }
        return answer(.stored)
    }

    private func answer(_ answer: ContractAnswer) -> Response {
        Response(body: answer.json)
    }

    private static func error(_ status: Status, _ message: String) -> Response {
        Response(status: status, body: ContractAnswer.httpError(status: status.rawValue, message: message).json)
    }

    // MARK: - Values

    /// The id with its tags removed; nil when it is not UTF-8, holds NUL, or is then empty or too long.
    private static func checkedID(_ uniqueID: [UInt8]) -> [UInt8]? {
        guard isUTF8(uniqueID), uniqueID.span.firstIndex(of: 0, in: 0..<uniqueID.count) == nil else { return nil }
        let key = TagRemoval.removeTags(from: uniqueID)
        return key.isEmpty || key.count > uniqueIDLimit ? nil : key
    }

    private static func isUTF8(_ bytes: [UInt8]) -> Bool {
        (try? UTF8Span(validating: bytes.span)) != nil
    }
}
