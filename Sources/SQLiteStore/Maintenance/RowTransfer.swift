internal import Glibc
internal import TokenStore

/// Compares rows of another store with those of a SQLite store, and takes them over, on the writer's thread.
struct RowTransfer: Sendable {
    private let table: TransferTable
    private let sealing: Sealing
    private let retention: Retention

    /// - Parameter retention: The one in force.
    init(_ table: TransferTable, _ sealing: Sealing, _ retention: Retention) {
        self.table = table
        self.sealing = sealing
        self.retention = retention
    }

    /// Opens rows, and thereby makes sure that they belong into this store.
    func received(_ rows: [TransferRow]) throws(StoreError) -> [ReceivedRow] {
        var coder = RowCoder(sealing)
        do throws(SealingError) {
            return try rows.map { (row) throws(SealingError) in try coder.receive(row) }
        } catch {
            throw .sealing(error)
        }
    }

    // MARK: - With the writer

    func compare(_ stamps: [TransferStamp], _ writer: WriterConnection) throws(SQLiteError) -> [TransferStanding] {
        var coder = RowCoder(sealing)
        var standings: [TransferStanding] = []
        for stamp in stamps {
            guard let hashPrefix = try? coder.hashPrefix(of: stamp.key.bytes) else {
                standings.append(.different)
                continue
            }
            let key = RowKey(bytes: stamp.key.bytes, hashPrefix: hashPrefix)
            standings.append(standing(of: stamp, beside: try present(key, writer, &coder)))
        }
        return standings
    }

    private func standing(of stamp: TransferStamp, beside present: TransferStamp.Present?) -> TransferStanding {
        stamp.standing(beside: present, in: table, retention, at: Int64(time(nil)))
    }

    /// What is stored under a key.
    private func present(
        _ key: RowKey, _ writer: WriterConnection, _ coder: inout RowCoder
    ) throws(SQLiteError) -> TransferStamp.Present? {
        switch table {
        case .tokens:
            let select = try SQLiteStatement(
                "SELECT \(StoredRow.columns) FROM token WHERE \(RowSlots.condition("?2")) AND key = ?1",
                on: writer.connection)
            try select.bind(key.firstSlot, at: 2)
            return try select.withBinding(key.bytes, at: 1) { () throws(SQLiteError) in
                guard try select.step() else { return nil }
                let row = StoredRow(select)
                let token = try? row.token(of: select.blob(at: StoredRow.Column.value).span, &coder)
                return .init(
                    version: row.version.rawValue, time: row.times.writtenAt,
                    digest: token.flatMap { try? TransferRow.digest(of: $0) })
            }
        case .sessions:
            guard let row = try session(key.bytes, writer) else { return nil }
            let opened = try? coder.open(row)
            return .init(
                version: row.number, time: row.usedAt, digest: opened.flatMap { try? TransferRow.digest(of: $0) })
        }
    }

    private func session(_ key: [UInt8], _ writer: WriterConnection) throws(SQLiteError) -> StoredSession? {
        let select = try SQLiteStatement(
            "SELECT \(SessionRow.columns) FROM session WHERE key = ?1", on: writer.connection)
        return try select.withBinding(key, at: 1) { () throws(SQLiteError) in
            try select.step() ? StoredSession(select) : nil
        }
    }

    /// Takes rows, all in one transaction; only those before the first that fails.
    func take(
        _ rows: [ReceivedRow], _ writer: WriterConnection
    ) throws(SQLiteError) -> Result<[TransferStanding], StoreError> {
        let acceptance = sealing.acceptance
        var coder = RowCoder(sealing)
        return try writer.transaction { () throws(SQLiteError) in
            try writer.checkLimits()
            var standings: [TransferStanding] = []
            for row in rows {
                switch row {
                case .token(var row, let stamp):
                    guard acceptance.accepts(row) else { return .failure(.staleKey) }
                    let present = try present(row.key, writer, &coder)
                    var standing = standing(of: stamp, beside: present)
                    if standing == .wanted {
                        row.version = version(of: stamp, beside: present, &writer.versions)
                        if case .failure(let error) = try writer.store(row) { return .failure(error) }
                        standing = .same
                    }
                    standings.append(standing)
                case .session(let row, let stamp):
                    guard acceptance.accepts(index: row.index, keyNumber: row.keyNumber) else {
                        return .failure(.staleKey)
                    }
                    let present = try present(RowKey(bytes: row.key), writer, &coder)
                    var standing = standing(of: stamp, beside: present)
                    if standing == .wanted {
                        let sessions = try writer.sessions(sealing)
                        if present == nil {
                            let number = version(of: stamp, beside: nil, &writer.versions)
                            try sessions.add(row, number: number.rawValue)
                            writer.sessionCount += 1
                        } else {
                            try sessions.noteUse(of: row.key, at: stamp.time)
                        }
                        standing = .same
                    }
                    standings.append(standing)
                }
            }
            return .success(standings)
        }
    }

    /// The version that a row has here: its own, unless what is here has a later one, from another store's clock.
    private func version(
        of stamp: TransferStamp, beside present: TransferStamp.Present?, _ versions: inout VersionCounter
    ) -> TokenVersion {
        guard let version = stamp.plausibleVersion(at: Int64(time(nil))), version > present?.version ?? -1 else {
            return versions.next()
        }
        versions.raise(to: version)
        return TokenVersion(rawValue: version)
    }

    /// Those of some keys that have no row.
    func missing(_ keys: [EncodedBytes], _ writer: WriterConnection) throws(SQLiteError) -> [EncodedBytes] {
        var coder = RowCoder(sealing)
        var missing: [EncodedBytes] = []
        for key in keys {
            let isThere: Bool
            switch table {
            case .tokens:
                let prefix = try? coder.hashPrefix(of: key.bytes)
                isThere =
                    try prefix.map { (prefix) throws(SQLiteError) in
                        try writer.table.find(RowKey(bytes: key.bytes, hashPrefix: prefix)) != nil
                    } ?? false
            case .sessions: isThere = try session(key.bytes, writer) != nil
            }
            if !isThere { missing.append(key) }
        }
        return missing
    }

    /// Removes rows that are as they were seen; returns how many.
    func remove(_ places: [TransferPlaces.Place], _ writer: WriterConnection) throws(SQLiteError) -> Int {
        var coder = RowCoder(sealing)
        return try writer.transaction { () throws(SQLiteError) in
            var count = 0
            for place in places {
                switch table {
                case .tokens:
                    guard let prefix = try? coder.hashPrefix(of: place.key.bytes) else { continue }
                    let key = RowKey(bytes: place.key.bytes, hashPrefix: prefix)
                    guard try writer.table.find(key)?.version.rawValue == place.version,
                        try writer.table.remove(key)
                    else { continue }
                    writer.noteRemoved(1)
                case .sessions:
                    guard let row = try session(place.key.bytes, writer), row.number == place.version else { continue }
                    let sessions = try writer.sessions(sealing)
                    writer.noteEnded(try sessions.remove([row]), sessions)
                }
                count += 1
            }
            return count
        }
    }
}
