package import Cryptography

/// What rows are copied of.
package enum TransferTable: String, Codable, CaseIterable, Sendable {
    case tokens, sessions
}

/// A row on its way to another store.
///
/// All times are in seconds since 1970.
package struct TransferRow: Codable, Sendable {
    package var stamp: TransferStamp
    /// The number of the key that sealed the value; 0 in the clear.
    package var keyNumber: Int
    package var value: EncodedBytes
    /// Nil for a token.
    package var session: Session?

    /// What only sessions have.
    package struct Session: Codable, Sendable {
        package var id: EncodedBytes
        package var userKey: EncodedBytes
        package var createdAt: Int64
    }

    /// The row of a token.
    package init(
        _ token: Token, key: [UInt8], version: TokenVersion, times: RowTimes, keyNumber: Int, value: [UInt8]
    ) throws(CryptographyError) {
        stamp = TransferStamp(
            key: EncodedBytes(key), version: version.rawValue, time: times.writtenAt, expiresAt: times.expiresAt,
            digest: EncodedBytes(try Self.digest(of: token)))
        self.keyNumber = keyNumber
        self.value = EncodedBytes(value)
    }

    /// The row of a session.
    package init(_ row: StoredSession, _ opened: OpenedSession) throws(CryptographyError) {
        stamp = TransferStamp(
            key: EncodedBytes(row.key), version: row.number, time: row.usedAt, expiresAt: row.expiresAt,
            digest: EncodedBytes(try Self.digest(of: opened)))
        keyNumber = row.keyNumber
        value = EncodedBytes(row.user)
        session = Session(
            id: EncodedBytes(row.id), userKey: EncodedBytes(row.userKey), createdAt: row.createdAt)
    }

    /// Stands for what a token's row has sealed, whichever key has sealed it.
    package static func digest(of token: Token) throws(CryptographyError) -> [UInt8] {
        // The length tells where the id ends.
        let length = UInt64(token.id.count)
        let prefix = stride(from: 56, through: 0, by: -8).map { UInt8(truncatingIfNeeded: length >> UInt64($0)) }
        return try SHA256Digest.digest(of: (prefix + token.id + token.info).span)
    }

    /// The same for a session.
    package static func digest(of opened: OpenedSession) throws(CryptographyError) -> [UInt8] {
        try SHA256Digest.digest(of: (opened.session.id.bytes + opened.key.bytes + opened.session.user).span)
    }

    /// The times that a token's value is bound to.
    package var times: RowTimes { RowTimes(writtenAt: stamp.time, expiresAt: stamp.expiresAt) }

    /// Nil for a token.
    package var storedSession: StoredSession? {
        session.map {
            StoredSession(
                key: stamp.key.bytes, id: $0.id.bytes, userKey: $0.userKey.bytes, keyNumber: keyNumber,
                user: value.bytes, createdAt: $0.createdAt, expiresAt: stamp.expiresAt ?? 0, usedAt: stamp.time,
                number: stamp.version)
        }
    }
}

/// What tells a state of a row from every other.
package struct TransferStamp: Codable, Hashable, Sendable {
    package var key: EncodedBytes
    /// The version of a token, or the number of a session.
    package var version: Int64
    /// When a token was written, or a session last used.
    package var time: Int64
    package var expiresAt: Int64?
    package var digest: EncodedBytes
}

extension TransferStamp {
    /// The version, unless it lies so far ahead that the clock of the server that gave it was wrong: those that follow it would use
    /// up the numbers.
    ///
    /// - Parameter now: In seconds since 1970.
    package func plausibleVersion(at now: Int64) -> Int64? {
        // Of stores on PostgreSQL; those of SQLite are smaller.
        let limit = ((now + 366 * 86_400) * 1_000_000) << 10
        return (0...limit).contains(version) ? version : nil
    }
}

/// How a row of another store stands beside what is here.
package enum TransferStanding: String, Codable, Sendable {
    /// There is nothing here, or something older.
    case wanted
    /// It is here already.
    case same
    /// What is here is newer, or was removed later.
    case newer
    /// It would be deleted at once.
    case expired
    /// Something else is here that is as old: one of the stores was changed by hand.
    case different
}

extension TransferStamp {
    /// What the other store has under the same key.
    package struct Present: Sendable {
        package var version: Int64
        package var time: Int64
        /// Nil for a removed token, and for a row that cannot be decrypted.
        package var digest: [UInt8]?
        package var isRemoved: Bool

        package init(version: Int64, time: Int64, digest: [UInt8]?, isRemoved: Bool = false) {
            self.version = version
            self.time = time
            self.digest = digest
            self.isRemoved = isRemoved
        }
    }

    /// - Parameters:
    ///   - present: Nil for nothing.
    ///   - table: What it is a row of.
    ///   - retention: That of the store that takes rows.
    ///   - now: In seconds since 1970.
    package func standing(
        beside present: Present?, in table: TransferTable, _ retention: Retention, at now: Int64
    ) -> TransferStanding {
        if isExpired(in: table, retention, at: now) { return .expired }
        guard let present else { return .wanted }
        switch table {
        case .tokens:
            if present.time != time { return present.time > time ? .newer : .wanted }
            if present.isRemoved { return present.version > version ? .newer : .wanted }
            if present.digest == digest.bytes { return .same }
            if present.version != version { return present.version > version ? .newer : .wanted }
            return .different
        case .sessions:
            guard present.digest == digest.bytes else { return .different }
            return present.time < time ? .wanted : .same
        }
    }

    private func isExpired(in table: TransferTable, _ retention: Retention, at now: Int64) -> Bool {
        switch table {
        case .tokens: retention.deadline(writtenAt: time, expiresAt: expiresAt) <= now
        case .sessions:
            (expiresAt ?? 0) <= now || retention.sinceSessionUsed.map { time < now - $0.components.seconds } ?? false
        }
    }
}
