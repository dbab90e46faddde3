import Foundation
import Testing

@testable import TokenCacheClient

@Suite struct TokenErrorCategoryTests {
    private static let cases: [(any Error, TokenErrorCategory)] = [
        (CancellationError(), .cancelled), (URLError(.cancelled), .cancelled), (Trouble(), .other),
        (TokenSessionError.limitedLogin, .other),
        (URLError(.timedOut), .retryLater(after: nil)), (TokenSessionError.closed, .cancelled),
        (TokenSessionError.expired, .logInAgain), (TokenSessionError.blankToken, .programFault),
        (TokenCacheError.unavailable(status: 429, retryAfter: .seconds(70)), .retryLater(after: .seconds(70))),
        (TokenCacheError.redirected(status: 302), .retryLater(after: nil)),
        (TokenCacheError.unreachable(code: -1_004), .retryLater(after: nil)),
        (TokenCacheError.unreachable(code: -1_022), .programFault),
        (TokenCacheError.refused(status: 200, code: "50001"), .retryLater(after: nil)),
        (TokenCacheError.refused(status: 200, code: "30001"), .programFault),
        (TokenCacheError.refused(status: 408, code: "none"), .retryLater(after: nil)),
        (TokenCacheError.refused(status: 413, code: "none"), .programFault),
        (TokenCacheError.unauthorized(), .appSessionEnded), (TokenCacheError.locked, .deviceLocked),
        (TokenCacheError.conflict(current: nil), .logInAgain), (TokenCacheError.unreadable(""), .logInAgain),
    ]

    @Test func `each error has a category, by which an app acts`() {
        for (error, category) in Self.cases { #expect(TokenErrorCategory(error) == category, "\(error)") }
    }
}
