import Cryptography
import Glibc

/// A session as it is stored.
///
/// A client that presents its secret acts as the user.
///
/// All times are in seconds since 1970.
package struct UserSession: Hashable, Sendable {
    package let id: SessionID
    package let user: [UInt8]
    package let createdAt: Int64
    /// The session is invalid from this time on, however often it is used.
    package let expiresAt: Int64
    /// The time of the last recorded use; not every use is recorded (`StoreHandle.noteUse`).
    package let lastUsedAt: Int64

    /// - Parameter lastUsedAt: Nil for a new session.
    package init(id: SessionID, user: [UInt8], createdAt: Int64, expiresAt: Int64, lastUsedAt: Int64? = nil) {
        (self.id, self.user) = (id, user)
        (self.createdAt, self.expiresAt, self.lastUsedAt) = (createdAt, expiresAt, lastUsedAt ?? createdAt)
    }

    /// A new session.
    ///
    /// For twelve hours after the wall clock was set back, the store's clock is ahead of it (`StoreClock`). The session is valid by
    /// both, whichever turns out to be right.
    ///
    /// - Parameters:
    ///   - storeTime: Now, by the store's clock.
    ///   - wallTime: Now, by the wall clock.
    ///   - maxAge: How long the session is valid, in seconds.
    package init(
        id: SessionID, user: [UInt8], storeTime: Int64, wallTime: Int64 = Int64(time(nil)), maxAge: Int64
    ) {
        self.init(
            id: id, user: user, createdAt: min(storeTime, wallTime), expiresAt: storeTime + maxAge,
            lastUsedAt: storeTime)
    }
}

/// The result of a search for a session.
package enum FoundSession: Hashable, Sendable {
    /// There is none, or it has expired.
    case nothing
    /// It exists; the caller must check whether it has been idle for too long.
    case found(UserSession)
}

/// A session that was ended.
package struct EndedSession: Hashable, Sendable {
    package let id: SessionID
    /// The user whose session it was; nil if its row does not open, for example after a key was lost.
    package let user: [UInt8]?

    package init(id: SessionID, user: [UInt8]?) {
        self.id = id
        self.user = user
    }
}

/// Identifies a session to operators and backends; it is not secret, and of no use to a client.
///
/// Its text is `length` random bytes in base64url, 22 characters.
package struct SessionID: Hashable, Sendable, CustomStringConvertible {
    /// Bytes of an id.
    static let length = 16

    package let bytes: [UInt8]

    /// - Parameter bytes: Exactly `length` bytes.
    package init(_ bytes: [UInt8]) {
        precondition(bytes.count == Self.length, "the id of a session has 16 bytes")
        self.bytes = bytes
    }

    /// Reads the text of an id; nil if it is not one.
    package init?(_ text: String) {
        guard let bytes = Base64URL.decode(Array(text.utf8).span), bytes.count == Self.length else { return nil }
        self.bytes = bytes
    }

    /// A new id, whose text does not begin with a hyphen, because a command would take it for an option.
    package static func random() -> SessionID {
        while true {
            let bytes = RandomBytes.published(length)
            // The first character has the first six bits; 62 is the hyphen (RFC 4648, section 5).
            if bytes[0] >> 2 != 62 { return SessionID(bytes) }
        }
    }

    package var description: String { Base64URL.encode(bytes.span) }
}

/// Represents a session's secret in the server's memory: a hash, from which the secret cannot be found.
///
/// `StoreHandle.sessionKey` makes it. It is the same in a copy of the store, whichever key ring seals the copy.
package struct SessionKey: Hashable, Sendable {
    /// Bytes of a key.
    package static let length = 32

    // Not a vector: Swift 6.3 allots too little memory to an async function with a variable that is aligned to 32 bytes.
    private let first: UInt64
    private let second: UInt64
    private let third: UInt64
    private let fourth: UInt64

    /// - Parameter bytes: Exactly `length` bytes.
    package init(_ bytes: Span<UInt8>) {
        precondition(bytes.count == Self.length, "a session's key has 32 bytes")
        func word(_ start: Int) -> UInt64 {
            var word: UInt64 = 0
            for index in start..<(start + 8) { word = word << 8 | UInt64(bytes[index]) }
            return word
        }
        (first, second, third, fourth) = (word(0), word(8), word(16), word(24))
    }

    /// The bytes that it was made from.
    package var bytes: [UInt8] {
        [first, second, third, fourth].flatMap { word in
            stride(from: 56, through: 0, by: -8).map { UInt8(truncatingIfNeeded: word >> UInt64($0)) }
        }
    }

    /// The bytes are evenly distributed already.
    package func hash(into hasher: inout Hasher) {
        hasher.combine(first)
    }
}
