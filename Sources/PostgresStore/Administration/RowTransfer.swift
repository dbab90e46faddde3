#if PostgreSQL
internal import Glibc
internal import System
internal import TokenStore

/// Compares rows of another store with those of the database, and takes them over.
struct RowTransfer: Sendable {
    private let table: TransferTable
    private let state: PostgresState

    init(_ table: TransferTable, _ state: PostgresState) {
        self.table = table
        self.state = state
    }

    /// How it stands with each of some rows.
    func compare(
        _ stamps: [TransferStamp], _ session: BlockingSession, until deadline: MonotonicTime
    ) throws(PostgresError) -> [TransferStanding] {
        let present = try present(stamps.map(\.key.bytes), session, until: deadline)
        let (retention, now) = (state.retention, Int64(time(nil)))
        return stamps.map { $0.standing(beside: present[$0.key.bytes], in: table, retention, at: now) }
    }

    /// What is stored under some keys.
    private func present(
        _ keys: [[UInt8]], _ session: BlockingSession, until deadline: MonotonicTime
    ) throws(PostgresError) -> [[UInt8]: TransferStamp.Present] {
        var coder = RowCoder(state.sealing)
        var present: [[UInt8]: TransferStamp.Present] = [:]
        switch table {
        case .tokens:
            for row in try TokenRows(session, until: deadline).rows(of: keys) {
                let token = row.value == nil ? nil : try? row.token(&coder)
                present[row.key] = .init(
                    version: row.version.rawValue, time: row.times.writtenAt,
                    digest: token.flatMap { try? TransferRow.digest(of: $0) }, isRemoved: row.value == nil)
            }
        case .sessions:
            for row in try SessionRows(session, until: deadline).rows(of: keys) {
                let opened = try? coder.open(row)
                present[row.key] = .init(
                    version: row.number, time: row.usedAt,
                    digest: opened.flatMap { try? TransferRow.digest(of: $0) })
            }
        }
        return present
    }

    /// Takes rows; blocks its thread until they are durable.
    func take(_ rows: [TransferRow], _ sessions: PrimarySessions) throws(StoreError) -> [TransferStanding] {
        try check(rows)
        let stamps = rows.map(\.stamp)
        return try sessions.perform(within: PostgresAdministrator.stepTime, repeats: true) {
            (session, deadline) throws(PostgresError) in
            let present = try present(stamps.map(\.key.bytes), session, until: deadline)
            let (retention, now) = (state.retention, Int64(time(nil)))
            let wanted = rows.filter {
                $0.stamp.standing(beside: present[$0.stamp.key.bytes], in: table, retention, at: now) == .wanted
            }
            try session.transaction(until: deadline) { () throws(PostgresError) in
                switch table {
                case .tokens: try write(wanted, present, TokenRows(session, until: deadline))
                case .sessions: try add(wanted, present, SessionRows(session, until: deadline))
                }
            }
            // Others may have written meanwhile.
            return try compare(stamps, session, until: deadline)
        }
    }

    /// Writes tokens, unless something newer has come meanwhile.
    ///
    /// - Parameter present: What was there.
    private func write(
        _ rows: [TransferRow], _ present: [[UInt8]: TransferStamp.Present], _ table: TokenRows
    ) throws(PostgresError) {
        var (kept, renewed) = ([StoredToken](), [StoredToken]())
        for row in rows {
            let key = row.stamp.key.bytes
            // What is there may have a later version, from another store's clock.
            let version = row.stamp.plausibleVersion(at: Int64(time(nil)))
                .flatMap { $0 > present[key]?.version ?? -1 ? TokenVersion(rawValue: $0) : nil }
            if let version { state.versions.note(version) }
            if let present = present[key] { state.versions.note(TokenVersion(rawValue: present.version)) }
            let stored = StoredToken(
                key: key, version: version ?? state.versions.next(), times: row.times, keyNumber: row.keyNumber,
                value: row.value.bytes)
            if version == nil { renewed.append(stored) } else { kept.append(stored) }
        }
        _ = try table.write(kept, .earlier)
        _ = try table.write(renewed, .muchEarlier)
    }

    private func add(
        _ rows: [TransferRow], _ present: [[UInt8]: TransferStamp.Present], _ table: SessionRows
    ) throws(PostgresError) {
        let sessions = rows.compactMap(\.storedSession)
        let new = sessions.filter { present[$0.key] == nil }
        if !new.isEmpty { try table.add(new) }
        for row in sessions where present[row.key] != nil { try table.noteUse(of: row.key, at: row.usedAt) }
    }

    /// Opens rows, and thereby makes sure that they belong into this store.
    private func check(_ rows: [TransferRow]) throws(StoreError) {
        var coder = RowCoder(state.sealing)
        do throws(SealingError) {
            for row in rows { _ = try coder.receive(row) }
        } catch {
            throw .sealing(error)
        }
    }
}
#endif
