import Foundation
import TokenCacheClient

/// One device with an app in which one user is logged in, or not.
struct Device {
    private let name: String
    private let cache: LayeredTokenCache
    private let session: TokenSession
    private let commands: [String]

    init(_ arguments: Arguments) throws {
        guard let url = URL(string: arguments.server) else { throw TokenCacheError.invalidURL }
        let folder = URL(filePath: arguments.folder).appending(path: arguments.device)
        let secret = arguments.session
        let remote = try RemoteTokenCache(
            url: url,
            identity: secret.map { secret in .session { _ in try Self.secret(secret) } } ?? .uniqueID(arguments.user),
            transport: WithHeader(field: arguments.header))
        cache = LayeredTokenCache(
            local: LocalTokenCache(.directory(folder), user: arguments.user), remote: remote,
            patience: .seconds(arguments.patience))
        session = TokenSession(cache: cache, permissions: ["email"])
        name = arguments.device
        commands = arguments.commands
    }

    private static func secret(_ text: String) throws -> String {
        guard text.hasPrefix("@") else { return text }
        return try String(contentsOfFile: String(text.dropFirst()), encoding: .utf8)
            .trimmingCharacters(in: .whitespacesAndNewlines)
    }

    func run() async throws {
        var rest = commands.makeIterator()
        while let command = rest.next() {
            switch command {
            case "open": try await open(login: nil)
            case "login": try await open { Self.madeUp() }
            case "token":
                try await openIfNecessary()
                say(try await session.token().token)
            case "refresh":
                try await openIfNecessary()
                say(try await session.token(forcingRefresh: true) { _ in Self.madeUp() }.token)
            case "reload":
                try await openIfNecessary()
                say("\(try await session.reload())")
            case "logout":
                try await session.signOut()
                say("signed out")
            case "fetch": try await fetch()
            case "id": say(try await cache.fetch()?.loginID ?? "no login")
            case "synchronize":
                try await cache.synchronize()
                say("nothing waits")
            case "write": try await write(Int(rest.next() ?? "") ?? 0)
            default: throw Arguments.Failure(description: "there is no command \(command)")
            }
        }
        // A new token is delivered before it is stored.
        await session.close()
    }

    // MARK: - Commands

    private func open(login: TokenSession.Login?) async throws {
        let wasAsked = Flag()
        var asking: TokenSession.Login?
        if let login {
            asking = {
                await wasAsked.raise()
                return try await login()
            }
        }
        // Without a token here, there is nothing to do but to wait.
        try await session.open(patience: .seconds(40), login: asking)
        switch session.state {
        case .open: say(await wasAsked.isRaised ? "open, after the user has logged in" : "open, without a login")
        default: say("not logged in")
        }
    }

    private func openIfNecessary() async throws {
        if session.state == .created { try await session.open(patience: .seconds(40)) }
    }

    private func fetch() async throws {
        do {
            say(try await cache.fetch().map(\.token) ?? "no token")
        } catch {
            say("unknown: \(error)")
        }
    }

    private func write(_ count: Int) async throws {
        for _ in 0..<count {
            let token = Self.madeUp()
            say("stores \(token.token)")
            do {
                try await cache.store(token)
                say("stored \(token.token)")
            } catch TokenCacheError.conflict {
                // Another process or device has stored a newer one meanwhile.
                say("overtaken \(token.token)")
            }
        }
    }

    /// What a real app gets by asking the user.
    private static func madeUp() -> TokenInformation {
        let text = (0..<24).map { _ in String("0123456789abcdef".randomElement() ?? "0") }.joined()
        // In whole milliseconds, as they are stored.
        let now = Date(timeIntervalSince1970: (Date().timeIntervalSince1970 * 1_000).rounded() / 1_000)
        return TokenInformation(
            token: "CAAC" + text, expirationDate: now.addingTimeInterval(60 * 86_400), refreshDate: now,
            permissions: ["email", "public_profile"], loginType: .facebookApplication)
    }

    private func say(_ text: String) {
        // At once, for those who read along.
        FileHandle.standardOutput.write(Data("\(name): \(text)\n".utf8))
    }
}

/// Adds what a proxy that authenticates would add.
struct WithHeader: Transport {
    let field: (name: String, value: String)?

    func send(_ request: TransportRequest) async throws -> TransportResponse {
        var request = request
        if let field { request.headers[field.name] = field.value }
        return try await URLSessionTransport.shared.send(request)
    }
}

/// Whether something has happened.
actor Flag {
    private(set) var isRaised = false

    func raise() {
        isRaised = true
    }
}
