/// A session as it is stored: a client that shows its secret stands for the user.
///
/// All times are in seconds since 1970.
package struct UserSession: Hashable, Sendable {
    package let id: SessionID
    package let user: [UInt8]
    package let createdAt: Int64
    /// From then on it does not count any more, however often it is used.
    package let expiresAt: Int64
    /// As of the last use that was noted, which uses need not be; see `StoreHandle.noteUse`.
    package let lastUsedAt: Int64

    package init(id: SessionID, user: [UInt8], createdAt: Int64, expiresAt: Int64, lastUsedAt: Int64) {
        self.id = id
        self.user = user
        self.createdAt = createdAt
        self.expiresAt = expiresAt
        self.lastUsedAt = lastUsedAt
    }
}

extension UserSession {
    /// A session that is stored now.
    package init(_ new: NewSession) {
        self.init(
            id: new.id, user: new.user, createdAt: new.createdAt, expiresAt: new.expiresAt, lastUsedAt: new.createdAt)
    }
}

/// What a search for a session has found.
package enum FoundSession: Hashable, Sendable {
    /// There is none, or it has expired.
    case nothing
    /// It is there; whether it has been idle for too long is for the caller to judge.
    case found(UserSession)
}

/// A session to be stored.
///
/// All times are in seconds since 1970.
package struct NewSession: Sendable {
    package var user: [UInt8]
    package var key: SessionKey
    package var id: SessionID
    package var createdAt: Int64
    package var expiresAt: Int64
    /// How many sessions the user may have, with this one; the oldest ones beyond that end.
    ///
    /// At least 1.
    package var perUser: Int

    package init(user: [UInt8], key: SessionKey, id: SessionID, createdAt: Int64, expiresAt: Int64, perUser: Int) {
        self.user = user
        self.key = key
        self.id = id
        self.createdAt = createdAt
        self.expiresAt = expiresAt
        self.perUser = perUser
    }
}

/// A session that was stored.
package struct CreatedSession: Hashable, Sendable {
    package let id: SessionID
    /// Seconds since 1970.
    package let expiresAt: Int64
    /// How many of the user's oldest sessions were ended, so that there are not too many.
    package let ended: Int

    package init(id: SessionID, expiresAt: Int64, ended: Int) {
        self.id = id
        self.expiresAt = expiresAt
        self.ended = ended
    }
}

/// A session that was ended.
package struct EndedSession: Hashable, Sendable {
    package let id: SessionID
    /// Whom it stood for; nil if its row does not open, as after a key was lost.
    package let user: [UInt8]?

    package init(id: SessionID, user: [UInt8]?) {
        self.id = id
        self.user = user
    }
}
