import TokenStore

/// Rekeying, step by step: whenever it is interrupted, each row is sealed with the old key or with the new one. Rows keep their
/// times.
extension WriterConnection {
    /// Bytes of values after which a step ends, also one that only reads: this bounds its memory and time, however
    /// large tokens are.
    static let stepBytes = 4 << 20

    /// Reads some rows, and seals those again that are not sealed with the newest key.
    ///
    /// - Parameters:
    ///   - row: The row after which to begin.
    ///   - count: The most rows to read; fewer are read when they are large.
    func rekey(after row: Int64, count: Int) throws(SQLiteError) -> RekeyingStep<Int64> {
        let select = try SQLiteStatement(
            "SELECT \(StoredToken.columns) FROM token WHERE slot > ?1 ORDER BY slot LIMIT ?2", on: connection
        )
        let update = try SQLiteStatement(
            "UPDATE token SET value = ?1, key_number = ?2 WHERE slot = ?3", on: connection
        )
        try select.bind(row, at: 1)
        try select.bind(Int64(count), at: 2)
        var result = RekeyingStep<Int64>()
        var bytes = 0
        let active = coder.activeKeyNumber()
        try transaction { () throws(SQLiteError) in
            defer { select.reset() }
            while bytes < Self.stepBytes, try select.step() {
                result.seen += 1
                let row = StoredToken(select)
                result.next = row.slot
                if row.keyNumber == active { continue }
                guard let new = sealedAgain(row, select, &bytes) else {
                    result.unreadable += 1
                    continue
                }
                result.rekeyed += 1
                try update.bind(Int64(new.keyNumber), at: 2)
                try update.bind(result.next, at: 3)
                try update.withBinding(new.value, at: 1) { () throws(SQLiteError) in _ = try update.step() }
            }
        }
        if result.seen < count, bytes < Self.stepBytes { result.next = nil }
        return result
    }

    /// Dates some tokens again that were written by a wrong clock.
    ///
    /// - Parameter misdated: Their times of writing; its end is the new one.
    /// - Returns: Whether none is left that opens.
    func redate(_ misdated: Range<Int64>) throws(SQLiteError) -> Bool {
        let select = try SQLiteStatement(
            "SELECT \(StoredToken.columns) FROM token WHERE written_at >= ?1 AND written_at < ?2", on: connection)
        try select.bind(misdated.lowerBound, at: 1)
        try select.bind(misdated.upperBound, at: 2)
        return try transaction { () throws(SQLiteError) in
            defer { select.reset() }
            var (rows, bytes): ([(Row, TokenVersion)], Int) = ([], 0)
            while rows.count < 256, bytes < Self.stepBytes, try select.step() {
                let row = StoredToken(select)
                let times = RowTimes(writtenAt: misdated.upperBound, expiresAt: row.times.expiresAt)
                if let new = sealedAgain(row, select, &bytes, times) { rows.append((new, row.version)) }
            }
            for (row, version) in rows { _ = try table.replace(row, version) }
            return rows.isEmpty
        }
    }

    /// Reads some sessions, and seals those again that are not sealed with the newest key.
    ///
    /// - Parameters:
    ///   - key: The key of the row after which to begin.
    ///   - count: The most rows to read.
    func rekeySessions(after key: [UInt8], count: Int) throws(SQLiteError) -> RekeyingStep<[UInt8]> {
        guard sessionCount > 0 else { return RekeyingStep() }
        let active = coder.activeKeyNumber()
        return try transaction { () throws(SQLiteError) in
            let rows = try sessions.rows(after: key, limit: count)
            var step = RekeyingStep(next: rows.count < count ? nil : rows.last?.key)
            for row in rows where row.keyNumber != active {
                guard let new = sealedAgain(row) else {
                    step.unreadable += 1
                    continue
                }
                try sessions.replaceUser(of: new)
            }
            return step
        }
    }

    /// A session's row, sealed with the newest key; nil if it does not open.
    private func sealedAgain(_ row: SessionRow) -> SessionRow? {
        do throws(SealingError) {
            let opened = try coder.open(row)
            return try coder.row(of: opened.session, opened.key)
        } catch {
            return nil
        }
    }

    /// The row of a token, sealed with the newest key; nil if it does not open.
    private func sealedAgain(
        _ row: StoredToken, _ select: SQLiteStatement, _ bytes: inout Int, _ times: RowTimes? = nil
    ) -> Row? {
        do throws(SealingError) {
            return try coder.row(of: try row.token(of: select, &coder, &bytes).get(), times ?? row.times)
        } catch {
            return nil
        }
    }
}
