internal import Cryptography
internal import Glibc
internal import Synchronization
package import TokenStore

extension SQLiteAdministrator: StoreTransfer {
    package nonisolated var transfer: (any StoreTransfer)? { self }

    package func facts() async throws(StoreError) -> TransferFacts {
        try TransferFacts(store.state.sealing, tokens: try await statistics().tokens, servers: [])
    }

    // MARK: - Reading

    package func rows(
        of table: TransferTable, after cursor: StoreCursor?, limit: Int
    ) throws(StoreError) -> TransferPage {
        switch table {
        case .tokens: try tokens(after: cursor, limit: limit)
        case .sessions: try sessions(after: cursor, limit: limit)
        }
    }

    private func tokens(after cursor: StoreCursor?, limit: Int) throws(StoreError) -> TransferPage {
        let slot = try Self.slot(of: cursor)
        var coder = RowCoder(store.state.sealing)
        return try readingRows { (connection) throws(SQLiteError) in
            let select = try SQLiteStatement(
                "SELECT \(StoredRow.columns) FROM token WHERE slot > ?1 ORDER BY slot LIMIT ?2", on: connection)
            try select.bind(slot, at: 1)
            try select.bind(Int64(limit) + 1, at: 2)
            var (page, count, bytes, last) = (TransferPage(), 0, 0, slot)
            while try select.step() {
                if count == limit || bytes >= WriterConnection.stepBytes {
                    page.next = StoreCursor("\(last)")
                    break
                }
                let row = StoredRow(select)
                let value = select.blob(at: StoredRow.Column.value)
                (count, bytes, last) = (count + 1, bytes + value.count, row.slot)
                if let copied = Self.copied(row, value, &coder) {
                    page.rows.append(copied)
                } else {
                    page.unreadable += 1
                }
            }
            return page
        }
    }

    private static func copied(_ row: StoredRow, _ value: [UInt8], _ coder: inout RowCoder) -> TransferRow? {
        guard let token = try? row.token(of: value.span, &coder) else { return nil }
        return try? TransferRow(
            token, key: row.key, version: row.version, times: row.times, keyNumber: row.keyNumber, value: value)
    }

    private func sessions(after cursor: StoreCursor?, limit: Int) throws(StoreError) -> TransferPage {
        var coder = RowCoder(store.state.sealing)
        let rows = try sessionRows("key > ?1 ORDER BY key LIMIT \(limit)", try Self.key(of: cursor))
        var page = TransferPage()
        for row in rows {
            if let opened = try? coder.open(row), let copied = try? TransferRow(row, opened) {
                page.rows.append(copied)
            } else {
                page.unreadable += 1
            }
        }
        if rows.count == limit, let last = rows.last { page.next = StoreCursor(Base64URL.encode(last.key.span)) }
        return page
    }

    private func sessionRows(_ condition: String, _ key: [UInt8]) throws(StoreError) -> [StoredSession] {
        let connection = try reader().connection
        return try reading { () throws(SQLiteError) in
            let select = try SQLiteStatement(
                "SELECT \(SessionRow.columns) FROM session WHERE \(condition)", on: connection)
            return try select.withBinding(key, at: 1) { () throws(SQLiteError) in
                var rows: [StoredSession] = []
                while try select.step() { rows.append(StoredSession(select)) }
                return rows
            }
        }
    }

    package func places(
        in table: TransferTable, after cursor: StoreCursor?, limit: Int
    ) throws(StoreError) -> TransferPlaces {
        var places = TransferPlaces()
        switch table {
        case .sessions:
            let rows = try sessionRows("key > ?1 ORDER BY key LIMIT \(limit)", try Self.key(of: cursor))
            places.places = rows.map { .init(key: EncodedBytes($0.key), version: $0.number) }
            if rows.count == limit, let last = rows.last { places.next = StoreCursor(Base64URL.encode(last.key.span)) }
        case .tokens:
            let slot = try Self.slot(of: cursor)
            var last = slot
            places.places = try readingRows { (connection) throws(SQLiteError) in
                let select = try SQLiteStatement(
                    "SELECT slot, key, version FROM token WHERE slot > ?1 ORDER BY slot LIMIT ?2", on: connection)
                try select.bind(slot, at: 1)
                try select.bind(Int64(limit), at: 2)
                var found: [TransferPlaces.Place] = []
                while try select.step() {
                    last = Int64(select.integer(at: 0))
                    found.append(
                        .init(key: EncodedBytes(select.blob(at: 1)), version: Int64(select.integer(at: 2))))
                }
                return found
            }
            if places.places.count == limit { places.next = StoreCursor("\(last)") }
        }
        return places
    }

    private static func slot(of cursor: StoreCursor?) throws(StoreError) -> Int64 {
        // Before the first valid slot, to find misplaced rows.
        guard let cursor else { return .min }
        guard let slot = Int64(cursor.text) else { throw .refused("the cursor is not one of this store's") }
        return slot
    }

    private static func key(of cursor: StoreCursor?) throws(StoreError) -> [UInt8] {
        guard let cursor else { return [] }
        guard let key = Base64URL.decode(Array(cursor.text.utf8).span) else {
            throw .refused("the cursor is not one of this store's")
        }
        return key
    }

    // MARK: - Changing, on the writer's thread

    private func transfer(of table: TransferTable) -> RowTransfer {
        RowTransfer(table, store.state.sealing, store.state.retention)
    }

    package func compare(
        _ stamps: [TransferStamp], in table: TransferTable
    ) async throws(StoreError) -> [TransferStanding] {
        let transfer = transfer(of: table)
        return try await store.writerThread.perform { (writer) throws(SQLiteError) in
            try transfer.compare(stamps, writer)
        }
    }

    package func take(
        _ rows: [TransferRow], into table: TransferTable
    ) async throws(StoreError) -> [TransferStanding] {
        let transfer = transfer(of: table)
        let received = try transfer.received(rows)
        return try await store.writerThread.perform(writing: received.compactMap(\.id)) {
            (writer) throws(SQLiteError) in
            try transfer.take(received, writer)
        }.get()
    }

    package func missing(
        _ keys: [EncodedBytes], in table: TransferTable
    ) async throws(StoreError) -> [EncodedBytes] {
        let transfer = transfer(of: table)
        return try await store.writerThread.perform { (writer) throws(SQLiteError) in
            try transfer.missing(keys, writer)
        }
    }

    package func remove(
        _ places: [TransferPlaces.Place], from table: TransferTable
    ) async throws(StoreError) -> Int {
        let transfer = transfer(of: table)
        let removed = try await store.writerThread.perform { (writer) throws(SQLiteError) in
            try transfer.remove(places, writer)
        }
        // Answers that are remembered name ids, which only the removed rows have told.
        store.state.observer?.didChangeEverything()
        return removed
    }
}
