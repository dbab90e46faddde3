import Foundation
import TokenCacheClient

/// One device with an app in which one user at a time is logged in, or not.
struct Device {
    private let arguments: Arguments
    private let folder: URL
    private var cache: any TokenCaching
    private var session: TokenSession

    init(_ arguments: Arguments) async throws {
        self.arguments = arguments
        folder = URL(filePath: arguments.folder).appending(path: arguments.device)
        cache = LocalTokenCache(.memory, user: "")
        let current = try await Self.users(in: folder, cache).current()?.id
        cache = try Self.cache(of: arguments.user ?? current ?? Arguments.exampleUser, arguments, folder)
        session = Self.session(cache)
    }

    /// The cache of one user: the server alone, the device alone, or both.
    private static func cache(of user: String, _ arguments: Arguments, _ folder: URL) throws -> any TokenCaching {
        let local = LocalTokenCache(.directory(folder), user: user)
        if arguments.caches == .local { return local }
        guard let url = URL(string: arguments.server) else { throw TokenCacheError.invalidURL }
        let remote = try RemoteTokenCache(
            url: url,
            identity: arguments.session.map { text in .session { _ in try secret(text) } } ?? .uniqueID(user),
            transport: WithHeader(field: arguments.header))
        if arguments.caches == .remote { return remote }
        return LayeredTokenCache(local: local, remote: remote, patience: .seconds(arguments.patience))
    }

    private static func session(_ cache: any TokenCaching) -> TokenSession {
        TokenSession(cache: cache, permissions: ["email"])
    }

    /// The users of the device; the next one has this cache.
    private static func users(in folder: URL, _ cache: any TokenCaching) -> Users {
        Users(directory: folder) { _ in session(cache) }
    }

    private static func secret(_ text: String) throws -> String {
        guard text.hasPrefix("@") else { return text }
        return try String(contentsOfFile: String(text.dropFirst()), encoding: .utf8)
            .trimmingCharacters(in: .whitespacesAndNewlines)
    }

    mutating func run() async throws {
        var rest = arguments.commands.makeIterator()
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
                try await (cache as? LayeredTokenCache)?.synchronize()
                say("nothing waits")
            case "switch-user": try await switchUser(to: rest.next() ?? "")
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

    private mutating func switchUser(to user: String) async throws {
        guard arguments.session == nil, arguments.header == nil else {
            throw Arguments.Failure(description: "switch-user needs a server that takes unique ids")
        }
        await session.close()
        cache = try Self.cache(of: user, arguments, folder)
        session = try await Self.users(in: folder, cache).switch(to: user)
        say("the user is \(user)")
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
        FileHandle.standardOutput.write(Data("\(arguments.device): \(text)\n".utf8))
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
