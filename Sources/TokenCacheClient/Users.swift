public import Foundation

/// The users of one device, of whom one is current.
///
/// Each user has a session and a cache of their own, which your closure makes. Only the current user's session is open: an app
/// in which several users are logged in at the same time keeps their sessions itself. A private file has the list of users,
/// without their tokens. Switching and forgetting happen one after the other. Usable from any task.
public actor Users {
    /// A user of this device.
    public struct User: Sendable, Hashable, Identifiable, Codable {
        /// Different for each user of your app.
        public let id: String
        /// What your app shows.
        public var name: String?
    }

    private let list: UserList
    private let makeSession: @Sendable (String) async throws -> TokenSession
    private let turns = Turns()

    private var present: (user: String, session: TokenSession)?

    /// The session of the current user; nil before the first `switch(to:)`.
    public var session: TokenSession? { present?.session }

    /// The users in a folder.
    ///
    /// - Parameters:
    ///   - directory: A folder, which may be that of the tokens, and is made if necessary.
    ///   - session: Makes a new session for a user, which is not open yet. Its cache must be the user's own, for example
    ///     `LocalTokenCache(.directory(folder), user: id)`.
    public init(
        directory: URL, session: @escaping @Sendable (String) async throws -> TokenSession
    ) {
        list = UserList(file: PrivateFile(url: directory.appending(path: "users.jsonl")))
        makeSession = session
    }

    /// All users, the last used one first.
    ///
    /// - Throws: `TokenCacheError` if the file cannot be read.
    public func all() throws -> [User] {
        try list.read().map(\.user)
    }

    /// The user that the app last switched to, also before this start; nil if there is none.
    ///
    /// - Throws: `TokenCacheError` if the file cannot be read.
    public func current() throws -> User? {
        try list.read().first(where: \.isCurrent)?.user
    }

    /// Makes a user the current one, and adds them if they are new.
    ///
    /// The previous session is closed without clearing its token; a refresh that is under way is dropped.
    ///
    /// - Parameters:
    ///   - id: The user.
    ///   - name: What your app shows; nil keeps the present name.
    /// - Returns: The user's session: the present one if they are current, otherwise a new one, to be opened.
    /// - Throws: What making the session throws, and `TokenCacheError`; the current user does not change then. After a
    ///   `CancellationError`, the user changes nevertheless.
    @discardableResult
    public func `switch`(to id: String, name: String? = nil) async throws -> TokenSession {
        try await turns.run { try await self.change(to: id, name: name) }
    }

    /// Forgets a user: their token is cleared, on all devices if their cache is a remote one, and then their entry is removed.
    ///
    /// Without a network, the sign-out stays on the disk and is sent by the next `LayeredTokenCache` for the same place.
    ///
    /// - Parameters:
    ///   - id: The user.
    ///   - endAccount: As for `TokenSession.signOut(then:)`; it cannot switch or forget users, as this happens one after the other.
    /// - Returns: Whether the server has the sign-out.
    /// - Throws: What the cache throws if the token cannot be cleared; what the closure throws. The user is then still there.
    @discardableResult
    public func forget(
        _ id: String, then endAccount: (@Sendable (_ isSent: Bool) async throws -> Void)? = nil
    ) async throws -> Bool {
        try await turns.run { try await self.remove(id, then: endAccount) }
    }

    private func change(to id: String, name: String?) async throws -> TokenSession {
        let (before, next) = (session, try await session(of: id))
        try list.change { entries in
            let known = entries.first { $0.user.id == id }?.user
            var others = entries.filter { $0.user.id != id }
            for index in others.indices { others[index].isCurrent = false }
            entries = [UserList.Entry(user: User(id: id, name: name ?? known?.name), isCurrent: true)] + others
        }
        present = (id, next)
        if before !== next { await before?.close() }
        return next
    }

    private func remove(
        _ id: String, then endAccount: (@Sendable (_ isSent: Bool) async throws -> Void)?
    ) async throws -> Bool {
        let session = try await session(of: id)
        let isSent = try await session.signOut(then: endAccount)
        // The note that this user has signed out would serve only a session that opens again.
        if isSent { try? await session.local?.clear() }
        try list.change { $0.removeAll { $0.user.id == id } }
        if present?.user == id { present = nil }
        return isSent
    }

    private func session(of id: String) async throws -> TokenSession {
        if let present, present.user == id { present.session } else { try await makeSession(id) }
    }
}

/// The users of a device: a private file with a line of JSON for each, the last used one first.
///
/// A damaged line is left out, and the others are still read. A later format would be in a file of another name.
private struct UserList {
    struct Entry: Codable, Equatable {
        var user: Users.User
        var isCurrent: Bool
    }

    let file: PrivateFile

    func read() throws(TokenCacheError) -> [Entry] {
        (try file.read() ?? Data()).split(separator: UInt8(ascii: "\n")).compactMap { try? JSON.value(Entry.self, $0) }
    }

    /// Changes the list, while no other process does.
    func change(_ change: (inout [Entry]) -> Void) throws(TokenCacheError) {
        try file.exclusively { () throws(TokenCacheError) in
            let before = try read()
            var entries = before
            change(&entries)
            // On a full disk, an app must be able to start.
            if entries == before { return }
            try file.write(Data(entries.map { JSON.text($0) + "\n" }.joined().utf8))
        }
    }
}
