package import HTTP

/// Why a request is not served, although it could be read: counted by these words, and written in the audit log.
package enum AccessFailure: String, CaseIterable, Error, Sendable {
    /// There is no credential.
    case missing
    /// What stands in the place of the credential cannot be one.
    case malformed
    /// The credential is none of ours, or was revoked.
    case unknown
    /// The credential was valid once.
    case expired
    /// A JWT is not accepted.
    case invalidToken = "invalid_token"
    /// A JWT is longer than those that are looked at.
    case tooLong = "too_long"
    /// `unique_id` names another user than the credential.
    case otherUser = "other_user"
    /// There are two different credentials.
    case conflicting
    /// An API key does not have the scope.
    case scope
    /// A page of another site has the browser show the user's certificate, or log in at the proxy.
    case foreignPage = "foreign_page"
    /// The address has had too many failures.
    case limited
    /// The audit log cannot be written.
    case unrecorded

    /// Whether a client that guesses meets it, so that it counts for `access.failures`.
    ///
    /// A phone that has slept too long sends an expired session, and one without a credential guesses nothing.
    var isGuess: Bool {
        switch self {
        case .malformed, .unknown, .invalidToken: true
        case .missing, .expired, .tooLong, .otherUser, .conflicting, .scope, .foreignPage, .limited, .unrecorded: false
        }
    }

    /// Whether it is written in the audit log: what tells of a guess, or of somebody who has or had a credential.
    var isRecorded: Bool { isGuess || [.expired, .otherUser, .scope, .foreignPage].contains(self) }

    /// Where a request has its credential, which decides how it is told of a failure.
    package enum Place: Sendable {
        /// In `unique_id`, as apps that were made for `token.php` do. They only read the JSON of an answer with status 200.
        case parameter
        /// In a header field or a certificate.
        case field
    }

    /// The answer, as RFC 6750, section 3.1, and the contract have it.
    ///
    /// - Parameters:
    ///   - place: Where the credential is.
    ///   - isWrite: Whether the request would have changed something.
    ///   - wait: After how many seconds a failure is within the limit again; of `limited`.
    package func response(in place: Place, isWrite: Bool, wait: Int? = nil) -> Response {
        switch (self, place) {
        case (.missing, .parameter): return Response(.invalidInput)
        case (.malformed, .parameter), (.unknown, .parameter), (.expired, .parameter), (.invalidToken, .parameter),
            (.tooLong, .parameter):
            // The same bytes as for an id without a token, or for a write that fails; counted as what it is.
            var response = Response(isWrite ? .writeFailed : .notFound)
            response.code = .denied
            return response
        case (.unrecorded, .parameter): return .failure(isWrite: isWrite)
        case (.missing, .field):
            return Response(.unauthorized, "A credential is missing.", challenge: .missing)
        case (.malformed, .field), (.unknown, .field), (.expired, .field), (.invalidToken, .field):
            return Response(.unauthorized, "The credential is not valid, or no longer.", challenge: .invalidToken)
        case (.tooLong, .field): return Response(.headTooLarge, "The credential has more than 16 KiB.")
        case (.otherUser, _): return Response(.forbidden, "The unique_id is not that of the credential's user.")
        case (.conflicting, _): return Response(.badRequest, "The request has two different credentials.")
        case (.scope, _):
            return Response(.forbidden, "The API key does not have the scope for this.", challenge: .insufficientScope)
        case (.foreignPage, _): return Response(.forbidden, "A page of another site must not send this.")
        case (.limited, _):
            var response = Response(.tooManyRequests, "Too many failed requests came from this address.")
            response.extras = Response.Extras(retryAfter: wait)
            return response
        case (.unrecorded, .field): return Response(.unavailable, "The request cannot be recorded at the moment.")
        }
    }
}
