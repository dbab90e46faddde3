internal import Foundation

/// What an answer of the server says, after everything that is not the server's has been refused.
enum ServerAnswer {
    /// A token info was found, maybe an empty one.
    case found(String)
    /// Nothing is stored.
    case nothing
    /// The token was stored.
    case stored

    /// The code for an id without a token.
    private static let notFound = "50002"

    /// Reads an answer.
    ///
    /// - Parameters:
    ///   - response: The answer.
    ///   - url: The URL that was asked.
    ///   - isFetch: Whether a token info is expected.
    /// - Throws: `TokenCacheError`, for whatever is not an answer of the contract with status 200.
    init(_ response: TransportResponse, to url: URL, isFetch: Bool) throws(TokenCacheError) {
        if (300..<400).contains(response.status) { throw .redirected(status: response.status) }
        guard response.url.absoluteString == url.absoluteString else {
            throw .unexpectedAnswer(status: response.status, "it comes from another URL than the one that was asked")
        }
        switch response.status {
        case 200: break
        case 401: throw .unauthorized
        case 403: throw .forbidden
        case 429, 503: throw .unavailable(status: response.status, retryAfter: Self.retryAfter(response))
        default: throw .refused(status: response.status, code: Self.code(response) ?? "none")
        }
        let members = try Self.members(response)
        switch members["status"]?.string {
        case "true": break
        case "false":
            guard let code = members["errorCode"]?.string else {
                throw .unexpectedAnswer(status: 200, "it has no errorCode")
            }
            // The server has failed. Otherwise the body says the same: with 50002, that nothing is stored.
            if let wait = Self.retryAfter(response) { throw .unavailable(status: 200, retryAfter: wait) }
            guard code == Self.notFound, isFetch else { throw .refused(status: 200, code: code) }
            self = .nothing
            return
        default: throw .unexpectedAnswer(status: 200, #"its status is neither "true" nor "false""#)
        }
        guard isFetch else {
            guard members["token_info"] == nil else {
                throw .unexpectedAnswer(status: 200, "it is that of a fetch, not of a write")
            }
            self = .stored
            return
        }
        guard let text = members["token_info"]?.string else {
            throw .unexpectedAnswer(status: 200, "it has no token_info that is a string")
        }
        self = .found(text)
    }

    private static func members(
        _ response: TransportResponse
    ) throws(TokenCacheError) -> [String: TokenInformation.Value] {
        let value: TokenInformation.Value
        do {
            value = try JSONReader.value(response.body)
        } catch {
            throw .unexpectedAnswer(status: response.status, "it is not JSON: \(error.reason)")
        }
        guard case .object(let members) = value else {
            throw .unexpectedAnswer(status: response.status, "its JSON is not an object")
        }
        return members
    }

    private static func code(_ response: TransportResponse) -> String? {
        guard let members = try? members(response), let code = members["errorCode"]?.string,
            code.utf8.count <= 8, code.utf8.allSatisfy({ (0x30...0x39).contains($0) })
        else { return nil }
        return code
    }

    /// The delay of `Retry-After` in seconds (RFC 9110, section 10.2.3); its form with a date is not one of this server.
    private static func retryAfter(_ response: TransportResponse) -> Duration? {
        response.headers["retry-after"].flatMap { UInt32($0) }.map { .seconds(Int64($0)) }
    }
}
