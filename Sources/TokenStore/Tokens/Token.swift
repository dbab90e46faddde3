/// A unique id and its token info.
package struct Token: Hashable, Sendable {
    package let id: [UInt8]
    package let info: [UInt8]

    package init(id: [UInt8], info: [UInt8]) {
        self.id = id
        self.info = info
    }

    /// Bytes of memory that a token takes while it waits to be written: its own bytes, and those of the data kept with
    /// it.
    package static func waitingBytes(id: [UInt8], info: [UInt8]) -> Int {
        id.count + info.count + 512
    }
}

/// The times of a row, in seconds since 1970.
package struct RowTimes: Hashable, Sendable {
    package let writtenAt: Int64
    /// When the token expires according to its token info; nil if that does not say.
    package let expiresAt: Int64?

    package init(writtenAt: Int64, expiresAt: Int64?) {
        self.writtenAt = writtenAt
        self.expiresAt = expiresAt
    }
}

/// Distinguishes one state of a stored token from all others: it grows with each write to the store.
///
/// The same number is never given twice, not even after a crash, a removal, a restored backup, or a clock that was set back.
package struct TokenVersion: RawRepresentable, Hashable, Comparable, Sendable, CustomStringConvertible {
    package let rawValue: Int64

    package init(rawValue: Int64) {
        self.rawValue = rawValue
    }

    package static func < (one: TokenVersion, other: TokenVersion) -> Bool {
        one.rawValue < other.rawValue
    }

    package var description: String { "\(rawValue)" }
}

/// The condition of a write, checked in the transaction that writes.
///
/// If two writes are committed together, the second sees the first one's result.
package struct WriteCondition: Sendable {
    /// What must be stored under the id.
    ///
    /// A token that has expired counts as missing, whether it is deleted already or not.
    package enum Match: Sendable {
        /// Anything or nothing.
        case any
        /// Some token (`If-Match: *`).
        case exists
        /// No token (`If-None-Match: *`).
        case missing
        /// A token of one of these versions (`If-Match`).
        case oneOf([TokenVersion])
        /// No token, or one of another version (`If-None-Match`).
        case noneOf([TokenVersion])
    }

    package var match = Match.any
    /// A session that must still exist; nil for none.
    package var session: SessionKey?
    /// Whether a token that was written in the same second or later stays, as for an import; `match` is `any` then.
    package var keepsNewer = false

    package init(match: Match = .any, session: SessionKey? = nil) {
        self.match = match
        self.session = session
    }

    init(keepsNewer: Bool) {
        self.keepsNewer = keepsNewer
    }

    /// Whether there is no condition.
    package var isEmpty: Bool {
        if case .any = match { session == nil && !keepsNewer } else { false }
    }
}

extension WriteCondition.Match {
    /// Whether the stored token meets the condition.
    ///
    /// - Parameter current: The stored token's version; nil if there is none.
    package func holds(for current: TokenVersion?) -> Bool {
        switch (self, current) {
        case (.any, _), (.exists, .some), (.missing, nil), (.noneOf, nil): true
        case (.exists, nil), (.missing, .some), (.oneOf, nil): false
        case (.oneOf(let versions), let current?): versions.contains(current)
        case (.noneOf(let versions), let current?): !versions.contains(current)
        }
    }
}
