#if TokenRefresh
import Testing

@testable import TokenRefresh

@Suite struct ProviderOutcomeTests {
    private func outcome(
        _ status: Int, _ body: String, isComplete: Bool = true, retryAfter: Int? = nil,
        _ kind: RefreshProvider.Kind = .oauth2
    ) -> String {
        let response = ProviderResponse.answered(
            status: status, body: Array(body.utf8), isComplete: isComplete, retryAfter: retryAfter)
        return switch ProviderOutcome(response, of: kind) {
        case .tokens: "tokens"
        case .refused: "refused"
        case .rejected: "rejected"
        case .failed(let fault, let retryAfter): fault.rawValue + (retryAfter.map { " \($0)" } ?? "")
        case .unknown(let fault, let retryAfter): "unknown \(fault.rawValue)" + (retryAfter.map { " \($0)" } ?? "")
        }
    }

    @Test(
        arguments: [
            (201, #"{"access_token":"a"}"#, "tokens"), (202, "{}", "unknown lost"),
            (200, #"{"access_token":"a"}"#, "tokens"), (200, #"{"access_token":"a","error":"x"}"#, "tokens"),
            // A token is dead only if the answer says so in a word, whatever its status.
            (400, #"{"error":"invalid_grant"}"#, "refused"), (401, #"{"error":"invalid_grant"}"#, "refused"),
            (200, #"{"error":"invalid_grant"}"#, "refused"), (500, #"{"error":"invalid_grant"}"#, "unavailable"),
            (400, "", "rejected"), (400, "<html>invalid_grant</html>", "rejected"),
            (400, #"{"error":"invalid_request"}"#, "rejected"), (400, #"{"error":"invalid_scope"}"#, "rejected"),
            (200, #"{"error":"bad_refresh_token"}"#, "refused"),
            (401, #"{"error":"invalid_request","error_description":"The refresh token is invalid."}"#, "refused"),
            (401, #"{"error":"invalid_request","error_description":"The secret is missing."}"#, "rejected"),
            (401, #"{"error":"access_denied","error_description":"Unauthorized"}"#, "client"),
            (401, #"{"error":"invalid_token"}"#, "rejected"), (404, "", "rejected"),
            (401, "", "client"), (400, #"{"error":"invalid_client"}"#, "client"),
            (200, #"{"error":"incorrect_client_credentials"}"#, "client"),
            (400, #"{"error":"unsupported_grant_type"}"#, "client"),
            (400, #"{"error":"unauthorized_client"}"#, "client"),
            (429, "", "limited"), (400, #"{"error":"slow_down"}"#, "limited"),
            (500, #"{"error":"internal_server_error"}"#, "unavailable"),
            (503, #"{"error":"server_error"}"#, "unavailable"),
            (503, "", "unknown unavailable"), (503, #"{"message":"upstream connect error"}"#, "unknown unavailable"),
            (502, "", "unknown lost"), (504, "<html>", "unknown lost"), (520, "", "unknown lost"),
            (524, "<html>", "unknown lost"),
            // A page that does not come from the endpoint, and answers that may.
            (200, " <html>", "unreadable"), (200, "", "unknown unreadable"), (204, "", "unknown unreadable"),
            (200, "access_token=a&token_type=bearer", "unknown unreadable"), (200, "\u{feff}{}", "unknown lost"),
            (200, "\u{feff}{\"access_token\":\"a\"}", "tokens"), (200, "{}", "unknown lost"),
            (200, #" {"access_token":"#, "unknown lost"), (200, #"{"access_token":""}"#, "unknown lost"),
            (302, "", "unreadable"),
        ]
    )
    func `answers are judged by what servers do`(_ status: Int, _ body: String, _ expected: String) {
        #expect(outcome(status, body) == expected)
    }

    @Test func `an answer that is not whole is believed as far as it is an object`() {
        #expect(outcome(200, #"{"access_token":"a"}"#, isComplete: false) == "tokens")
        #expect(outcome(200, #"{"access_token":"a""#, isComplete: false) == "unknown lost")
        #expect(outcome(200, "", isComplete: false) == "unknown lost")
        #expect(outcome(200, "<html>", isComplete: false) == "unreadable")
        #expect(outcome(400, #"{"error":"invalid_grant"}"#, isComplete: false) == "refused")
        #expect(outcome(400, #"{"error":"invalid_gr"#, isComplete: false) == "rejected")
    }

    @Test func `the time that the provider asks for is passed on`() {
        #expect(outcome(429, "", retryAfter: 7) == "limited 7")
        #expect(outcome(503, #"{"error":"temporarily_unavailable"}"#, retryAfter: 7) == "unavailable 7")
        #expect(outcome(503, "", retryAfter: 7) == "unavailable 7")
        #expect(outcome(502, "", retryAfter: 7) == "unknown lost 7")
    }

    @Test(
        arguments: [
            (190, "refused"), (4, "limited"), (17, "limited"), (101, "client"), (1, "client"), (2, "rejected"),
            (100, "rejected"),
        ]
    )
    func `Facebook's codes are known`(_ code: Int, _ expected: String) {
        let body = #"{"error":{"message":"m","type":"OAuthException","code":\#(code),"fbtrace_id":"x"}}"#
        #expect(outcome(400, body, .facebook) == expected)
    }

    @Test func `what was not sent was not used up, and what was sent may have been`() {
        guard case .failed(.unreachable, nil) = ProviderOutcome(.notSent(.unreachable), of: .facebook),
            case .unknown(.timeout, nil) = ProviderOutcome(.lost(.timeout), of: .facebook)
        else {
            Issue.record("it is judged otherwise")
            return
        }
    }
}
#endif
