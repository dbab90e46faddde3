import Foundation
import Testing

@testable import TokenCacheClient

extension SessionTests {
    /// An ID token, whose signature no test checks.
    private func idToken(of issuer: String) -> TokenInformation {
        let payload = Data(#"{"iss":"\#(issuer)","sub":"7~~~"}"#.utf8).base64EncodedString()
            .replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
        return TokenInformation(token: "eyJhbGciOiJSUzI1NiJ9.\(payload).c2ln", expirationDate: .distantFuture)
    }

    @Test(arguments: ["https://www.facebook.com", "https://facebook.com", "https://limited.facebook.com/x"])
    func `a limited login is no login`(issuer: String) async throws {
        let limited = idToken(of: issuer)
        // As another version has stored it.
        let cache = MemoryCache(limited)
        let session = session(cache)
        #expect(try await session.open() == .created)
        let expected = TokenSessionError.limitedLogin
        await #expect(throws: expected) { try await session.open { limited } }
        #expect(session.state == .closedLoginFailed)
        await #expect(throws: expected) { try await session.adopt(limited) }
        #expect(!cache.done.contains("store"))
        try await session.open { TokenInformation(token: "EAAC", userID: "7") }
        await #expect(throws: expected) { try await session.adopt(limited) }
        await #expect(throws: expected) { try await session.extend { limited } }
        await #expect(throws: expected) { try await session.token(forcingRefresh: true) { _ in limited } }
        #expect(session.currentToken?.token == "EAAC" && cache.information?.token == "EAAC")
    }

    @Test(arguments: ["https://notfacebook.com", "https://login.example.com/facebook.com", "facebook", ""])
    func `the ID token of another service is a token like any other`(issuer: String) async throws {
        let session = session(MemoryCache())
        try await session.open { self.idToken(of: issuer) }
        #expect(session.state == .open)
    }
}
