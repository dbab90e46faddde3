package import Audit
import Cryptography
import TokenService
package import TokenStore

/// Makes a session for a user.
package struct AddSession: StoreRequest {
    package static let name = "sessions/add"
    package var action: AuditEvent.Action? { .createSession }
    var user: String
    /// How long it is valid, in seconds.
    var maxAge: Int64
    /// How many sessions the user may have, with this one.
    var perUser: Int

    package struct Reply: Codable, Sendable {
        /// The secret that the app sends; it is not shown again.
        package var session: String
        package var id: String
        /// Seconds since 1970.
        package var expiresAt: Int64
        /// How many of the user's oldest sessions ended to make room.
        package var ended: Int
    }

    package func act(_ reply: Reply) -> OperatorAct? { ("access sessions add", "sessions made: 1") }

    package init(user: String, maxAge: Int64, perUser: Int) {
        self.user = user
        self.maxAge = maxAge
        self.perUser = perUser
    }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> Reply {
        guard (1...Self.longest).contains(maxAge) else {
            throw .refused("max_age is \(maxAge); allowed is 1 to \(Self.longest) seconds")
        }
        guard (1...Self.most).contains(perUser) else {
            throw .refused("per_user is \(perUser); allowed is 1 to \(Self.most)")
        }
        let user = try StoredText.id(user)
        let (secret, id) = (RandomBytes.secret(SessionSecret.length), SessionID.random())
        let session = UserSession(id: id, user: user, storeTime: try await store.handle.unixTime, maxAge: maxAge)
        let ended = try await store.trail.recording(
            action, user: user, session: id,
            try await store.handle.outcome { (handle, completion) throws(StoreError) in
                let key = try handle.sessionKey(of: secret.span)
                handle.createSession(session, key, perUser: perUser, completion: completion)
            })
        return Reply(
            session: String(decoding: SessionSecret.text(of: secret.span), as: UTF8.self), id: "\(id)",
            expiresAt: session.expiresAt, ended: ended)
    }

    /// A hundred years.
    private static let longest: Int64 = 100 * 365 * 86_400
    private static let most = 1_000_000
}

/// Lists the sessions of a user, without their secrets.
package struct ListSessions: StoreRequest {
    package static let name = "sessions/list"
    package var action: AuditEvent.Action? { .listSessions }
    var user: String

    /// A session; all times are in seconds since 1970.
    package struct Entry: Codable, Sendable {
        package var id: String
        package var createdAt: Int64
        package var expiresAt: Int64
        /// The time of the last recorded use; not every use is recorded.
        package var lastUsedAt: Int64
    }

    package struct Reply: Codable, Sendable {
        package var sessions: [Entry]
    }

    package init(user: String) {
        self.user = user
    }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> Reply {
        let user = try StoredText.id(user)
        let sessions = try await store.trail.recording(
            action, user: user, try await store.handle.outcome { $0.listSessions(of: user, completion: $1) })
        return Reply(
            sessions: sessions.map {
                Entry(
                    id: "\($0.id)", createdAt: $0.createdAt, expiresAt: $0.expiresAt, lastUsedAt: $0.lastUsedAt)
            })
    }
}

/// Ends one session, or all sessions of a user.
package struct RemoveSessions: StoreRequest {
    package static let name = "sessions/remove"
    package var action: AuditEvent.Action? { id == nil ? .endSessions : .endSession }
    /// The session's id; nil to end all sessions of a user.
    var id: String?
    /// The user; nil to end one session.
    var user: String?

    package func act(_ reply: Removed) -> OperatorAct? {
        ("access sessions remove", "sessions ended: \(reply.removed)")
    }

    package init(id: String) {
        self.id = id
    }

    package init(user: String) {
        self.user = user
    }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> Removed {
        switch (id, user) {
        case (let id?, nil):
            guard let id = SessionID(id) else {
                throw .refused("the id of a session has 22 characters; token-cache access sessions list shows it")
            }
            let ended = try await store.trail.recording(
                action, session: id, try await store.handle.outcome { $0.endSession(id: id, completion: $1) }
            ) { ended, deed in
                deed.user = ended?.user
                if ended == nil { deed.outcome = .notFound }
            }
            return Removed(removed: ended == nil ? 0 : 1)
        case (nil, let user?):
            let user = try StoredText.id(user)
            let ended = try await store.trail.recording(
                action, user: user, try await store.handle.outcome { $0.endSessions(of: user, completion: $1) })
            return Removed(removed: ended)
        default: throw .refused("either id or user must be given")
        }
    }
}

/// Erases a user.
package struct EraseUser: StoreRequest {
    package static let name = "erase"
    package var action: AuditEvent.Action? { .erase }
    var user: String

    package func act(_ reply: Erasure) -> OperatorAct? { ("erase", "one user") }

    package init(user: String) {
        self.user = user
    }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> Erasure {
        let user = try StoredText.id(user)
        return try await store.trail.recording(
            action, user: user, try await store.handle.outcome { $0.erase(user, completion: $1) })
    }
}
