import Foundation
import Testing

@testable import TokenCacheClient

@Suite struct TokenErrorCategoryTests {
    @Test func `each error has a category, by which an app acts`() {
        let later = TokenErrorCategory.retryLater(after: nil)
        let cases: [(TokenErrorCategory, [any Error])] = [
            (.cancelled, [CancellationError(), URLError(.cancelled)]),
            (.cancelled, [TokenSessionError.closed, TokenSessionError.otherUser]),
            (
                later,
                [
                    URLError(.timedOut), TokenCacheError.unreachable(code: -1_004), TokenCacheError.timedOut,
                    TokenCacheError.redirected(status: 302), TokenCacheError.unexpectedAnswer(status: 200, ""),
                    TokenCacheError.unavailable(status: 503, retryAfter: nil),
                    TokenCacheError.refused(status: 200, code: "50001"),
                    TokenCacheError.refused(status: 408, code: "none"), TokenCacheError.refused(status: 500, code: ""),
                    TokenCacheError.storage(operation: "write", code: 28),
                ]
            ),
            (.retryLater(after: .seconds(70)), [TokenCacheError.unavailable(status: 429, retryAfter: .seconds(70))]),
            (.retryLater(after: .zero), [TokenCacheError.conflict(current: TokenInformation(token: "a"))]),
            (
                .logInAgain,
                [
                    TokenSessionError.expired, TokenSessionError.notOpen(.created), TokenCacheError.unreadable(""),
                    TokenCacheError.conflict(current: nil),
                ]
            ),
            (.appSessionEnded, [TokenCacheError.unauthorized(), TokenCacheError.forbidden()]),
            (.deviceLocked, [TokenCacheError.locked]),
            (
                .programFault,
                [
                    TokenCacheError.invalidURL, TokenCacheError.invalidID(""), TokenCacheError.laterFormat(found: 2),
                    TokenCacheError.unreachable(code: -1_022),
                    TokenCacheError.refused(status: 200, code: "30001"),
                    TokenCacheError.refused(status: 413, code: "none"), TokenSessionError.blankToken,
                ]
            ),
            (.other, [Trouble()]),
        ]
        for (category, errors) in cases {
            for error in errors { #expect(TokenErrorCategory(error) == category, "\(error)") }
        }
    }
}
