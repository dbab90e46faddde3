package import Cryptography
import Glibc
package import HTTP
package import TokenStore

/// Takes Facebook's messages that somebody has left the app (*deauthorize*) or wants the app's data deleted (*data deletion*), and tells
/// people how far the deletion of their data is.
///
/// Belongs to one loop's thread.
package final class FacebookCallbacks {
    private let secret: () -> SecretKey
    private let departures: Departures
    private let store: any StoreAdministrator
    private let publicHost: String
    private let report: (String, RequestID) -> Void
    private let execute: @Sendable (@escaping @Sendable () -> Void) -> Void

    /// - Parameters:
    ///   - secret: Gives the present app secret.
    ///   - departures: The process's.
    ///   - store: The store's.
    ///   - publicHost: The host of this server for other machines; empty for the host of the request.
    ///   - report: Logs what is wrong with a request, at a limited rate.
    ///   - execute: Runs work on the loop's thread.
    package init(
        secret: @escaping () -> SecretKey, _ departures: Departures, _ store: any StoreAdministrator,
        publicHost: String,
        report: @escaping (String, RequestID) -> Void,
        execute: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) {
        (self.secret, self.departures, self.store) = (secret, departures, store)
        (self.publicHost, self.report, self.execute) = (publicHost, report, execute)
    }

    private static let deauthorize: StaticString = "/facebook/deauthorize"
    private static let deletion: StaticString = "/facebook/data-deletion"

    func contains(_ path: ByteRange, in bytes: Span<UInt8>) -> Bool {
        bytes.equals(path, Self.deauthorize) || bytes.equals(path, Self.deletion)
    }

    /// Answers a request for a path that `contains` knows.
    func answer(to request: Request, in bytes: Span<UInt8>, _ requestID: RequestID) -> Answer {
        let head = request.head
        let isDeletion = bytes.equals(head.path, Self.deletion)
        switch head.method {
        case .post: return note(request, in: bytes, requestID, isDeletion: isDeletion)
        case .get where isDeletion: return state(of: head.query, in: bytes, requestID)
        default:
            let methods = isDeletion ? "GET, POST" : "POST"
            var response = Response(.methodNotAllowed, "This path has other methods: \(methods).")
            response.extras = Response.Extras(allowedMethods: methods)
            return .now(response)
        }
    }

    // MARK: - Facebook's messages

    private func note(
        _ request: Request, in bytes: Span<UInt8>, _ requestID: RequestID, isDeletion: Bool
    ) -> Answer {
        let secret = secret()
        let field = Self.value(of: "signed_request", in: request.body, of: bytes, from: .body)
        let message: SignedRequest
        do {
            message = try SignedRequest(field.span, secret, at: Int64(time(nil)))
        } catch {
            report("a message of Facebook's is refused: \(error.rawValue)", requestID)
            return .now(Response(.badRequest, "The signed_request is refused: \(error.rawValue)."))
        }
        let host = publicHost.isEmpty ? bytes.text(request.head.authority) : publicHost
        return asking(requestID) { [departures, store] () async throws(StoreError) in
            let departure = try await departures.note(message, erases: isDeletion, in: store)
            guard isDeletion else { return .stored }
            let code = departure.code(secret)
            let url = "https://\(host)\(Self.deletion)?code=\(code)"
            return Response(body: Array(#"{"url":"\#(url)","confirmation_code":"\#(code)"}"#.utf8))
        }
    }

    // MARK: - People

    /// How far a deletion is.
    private func state(of query: ByteRange, in bytes: Span<UInt8>, _ requestID: RequestID) -> Answer {
        let code = Self.value(of: "code", in: query, of: bytes, from: .query)
        guard let time = Departure.time(ofCode: code, secret()) else {
            return .now(Response(.notFound, "There is no deletion with this code."))
        }
        return asking(requestID) { [store] () async throws(StoreError) in
            let isOver = try await Departures.beginningOfLastRound(of: store).map { $0 > time } ?? false
            let text = isOver ? "has been deleted" : "will be deleted within a day"
            return Response(
                body: Array(
                    #"""
                    {"status":"true","deletion":"\#(isOver ? "complete" : "pending")",\#
                    "message":"What this service had from Facebook about you \#(text)."}
                    """#.utf8))
        }
    }

    /// The last value of a form's field; empty if there is none.
    private static func value(
        of name: StaticString, in form: ByteRange, of bytes: Span<UInt8>, from source: URLEncodedForm.Source
    ) -> [UInt8] {
        var value = ByteRange.empty
        URLEncodedForm.forEachPair(in: form, of: bytes, from: source) { found, text in
            if URLEncodedForm.role(of: found, in: bytes, for: name) == .parameter { value = text }
        }
        return URLEncodedForm.decoded(value, of: bytes)
    }

    /// The answer to a request that has to wait for the store.
    private func asking(
        _ requestID: RequestID, _ ask: @escaping @Sendable () async throws(StoreError) -> Response
    ) -> Answer {
        .later(
            PendingAnswer(
                bytes: Self.waitingBytes, timeLimit: .seconds(10),
                failure: { [report] error in
                    report("the store failed at a request of Facebook's, or about a deletion: \(error)", requestID)
                    return Response(.unavailable, "The store cannot do this at the moment.")
                },
                work: { [execute] pending in
                    let waiting = LoopBound(pending)
                    Task {
                        let outcome: Result<Response, StoreError>
                        do throws(StoreError) {
                            outcome = .success(try await ask())
                        } catch {
                            outcome = .failure(error)
                        }
                        execute { waiting.value.completion { .now($0) }(outcome) }
                    }
                }))
    }

    /// Bytes of memory that a message takes while it waits.
    private static let waitingBytes = 4_096
}
