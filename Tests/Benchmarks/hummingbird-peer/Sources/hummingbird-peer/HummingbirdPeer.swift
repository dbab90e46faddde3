import Hummingbird
import NIOPosix

/// Keeps tokens as token-cache does, on Hummingbird and GRDB: a peer of the benchmark.
///
/// Usage: hummingbird-peer PORT DATABASE EVENT-LOOPS
@main
struct HummingbirdPeer {
    static func main() async throws {
        let arguments = CommandLine.arguments
        guard arguments.count == 4, let port = Int(arguments[1]), let eventLoops = Int(arguments[3]) else {
            throw UsageError()
        }
        let store = try TokenStore(path: arguments[2])
        let application = Application(
            router: tokenRouter(store: store),
            configuration: ApplicationConfiguration(address: .hostname("127.0.0.1", port: port)),
            eventLoopGroupProvider: .shared(MultiThreadedEventLoopGroup(numberOfThreads: eventLoops))
        )
        try await application.runService()
    }
}

/// The command line is not as it should be.
struct UsageError: Error, CustomStringConvertible {
    var description: String { "usage: hummingbird-peer PORT DATABASE EVENT-LOOPS" }
}

/// `/token`: POST stores, GET fetches.
func tokenRouter(store: TokenStore) -> Router<TokenRequestContext> {
    let router = Router(context: TokenRequestContext.self)
    router.get("token") { request, _ -> TokenAnswer in
        guard let uniqueID = request.uri.queryParameters["unique_id"] else {
            return .invalidInput
        }
        guard let tokenInfo = try await store.tokenInfo(of: String(uniqueID)) else {
            return .notFound
        }
        return TokenAnswer(status: "true", tokenInfo: tokenInfo)
    }
    router.post("token") { request, context -> TokenAnswer in
        guard let form = try? await request.decode(as: TokenForm.self, context: context) else {
            return .invalidInput
        }
        try await store.store(form.tokenInfo, for: form.uniqueID)
        return TokenAnswer(status: "true")
    }
    return router
}
