// What the articles of the client library's documentation take for granted: an app, and what they use of Facebook's SDK, with its
// types. test_client.py compiles their code with this file.
import Foundation
import FoundationNetworking
import TokenCacheClient

struct Account: Sendable {
    let id = "1001"
    func tokenCacheSession(insteadOf refused: String?) async throws -> String { "" }
    func revokeSession() async throws {}
    func forgetSession() {}
}

struct Accounts: Sendable {
    func account(_ id: String) -> Account { Account() }
}

struct Facebook: Sendable {
    func login(asking permissions: Set<String> = []) async throws -> TokenInformation { token }
    func extend(_ old: TokenInformation) async throws -> TokenInformation { old }
}

struct Service: Sendable {
    struct Answer: Sendable {
        let accessToken = ""
        let expiresIn = 3_600
        let refreshToken: String? = nil
        let error: String? = nil
    }

    func refresh(_ refreshToken: String?) async throws -> Answer { Answer() }
}

let account = Account()
let accounts = Accounts()
let facebook = Facebook()
let service = Service()
let folder = URL(filePath: "/")
let startOfProcess = Date()
let loginWasInterrupted = false
let tokenURL = URL(filePath: "/")
let token = TokenInformation(token: "")
let cache = LayeredTokenCache(local: LocalTokenCache(.memory, user: ""), remote: LocalTokenCache(.memory, user: ""))
let session = TokenSession(cache: cache)

func makeCache(for account: Account) throws -> LayeredTokenCache { cache }
func makeSession(_ cache: LayeredTokenCache) -> TokenSession { session }
func showFeed() {}
func showLoginButton() {}
func showWhatWorksOffline() {}
func tellWidgets(_ token: TokenInformation) {}
func log(_ error: any Error) {}
func log(_ text: String) {}

nonisolated final class Delegate: NSObject, URLSessionDelegate {}

nonisolated let delegate = Delegate()

extension URLSessionTransport {
    convenience init(
        configuration: URLSessionConfiguration,
        challenge:
            @Sendable (
                URLAuthenticationChallenge,
                @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
            ) -> Void
    ) { self.init(configuration: configuration) }
}

extension LocalTokenCache.Storage {
    static func keychain(service: String, accessGroup: String) -> Self { .memory }
}

extension URL {
    static var documentsDirectory: URL { folder }
}

// MARK: - Swift Testing

func expect(_ condition: Bool) {}
func expect<Failure: Error, Value>(throws: Failure.Type, _ body: () async throws -> Value) async {}

// MARK: - Facebook's SDK

struct Permission: Hashable, Sendable, ExpressibleByStringLiteral {
    let name: String
    init(stringLiteral value: String) { name = value }
}

struct AccessToken: Sendable {
    static var current: AccessToken? {
        get { nil }
        set {}
    }
    let tokenString: String
    let permissions: Set<Permission>
    let declinedPermissions: Set<Permission>
    let appID: String
    let userID: String
    let expirationDate: Date
    let refreshDate: Date
}

struct Settings: Sendable {
    static let shared = Settings()
    let isAdvertiserTrackingEnabled = true
}

enum LoginResult {
    case success(granted: Set<Permission>, declined: Set<Permission>, token: AccessToken?)
    case cancelled
    case failed(any Error)
}

struct LoginConfiguration {
    init?(permissions: Set<Permission>) { return nil }
}

@MainActor struct LoginManager {
    func logIn(configuration: LoginConfiguration?, completion: @escaping (LoginResult) -> Void) {}
}
