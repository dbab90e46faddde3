#if PostgreSQL
internal import System
package import TokenStore

extension PostgresAdministrator: StoreTransfer {
    package var transfer: (any StoreTransfer)? { self }

    package func facts() async throws(StoreError) -> TransferFacts {
        try TransferFacts(state.sealing, tokens: try await statistics().tokens, servers: [])
    }

    // MARK: - Reading

    package func rows(
        of table: TransferTable, after cursor: StoreCursor?, limit: Int
    ) async throws(StoreError) -> TransferPage {
        var page = TransferPage()
        var coder = RowCoder(state.sealing)
        let start = try Self.key(of: cursor)
        func add(_ row: TransferRow?) {
            if let row { page.rows.append(row) } else { page.unreadable += 1 }
        }
        switch table {
        case .tokens:
            let (rows, isLast) = try await rows(after: start, limit: limit)
            for row in rows { add(row.transferred(&coder)) }
            if !isLast, let last = rows.last { page.next = Self.cursor(after: last.key) }
        case .sessions:
            let rows = try await sessionRows(after: start, limit: limit)
            for row in rows { add((try? coder.open(row)).flatMap { try? TransferRow(row, $0) }) }
            if rows.count == limit, let last = rows.last { page.next = Self.cursor(after: last.key) }
        }
        return page
    }

    private func sessionRows(after key: [UInt8], limit: Int) async throws(StoreError) -> [StoredSession] {
        try await reading { (session, deadline) throws(PostgresError) in
            try SessionRows(session, until: deadline).page(after: key, limit: limit)
        }
    }

    package func places(
        in table: TransferTable, after cursor: StoreCursor?, limit: Int
    ) async throws(StoreError) -> TransferPlaces {
        let start = try Self.key(of: cursor)
        var places = TransferPlaces()
        places.places = try await reading { (session, deadline) throws(PostgresError) in
            try RowPlaces(table, session, until: deadline).page(after: start, limit: limit)
        }
        if places.places.count == limit, let last = places.places.last {
            places.next = Self.cursor(after: last.key.bytes)
        }
        return places
    }

    package func missing(
        _ keys: [EncodedBytes], in table: TransferTable
    ) async throws(StoreError) -> [EncodedBytes] {
        let found = try await reading { (session, deadline) throws(PostgresError) in
            try RowPlaces(table, session, until: deadline).present(of: keys.map(\.bytes))
        }
        return keys.filter { !found.contains($0.bytes) }
    }

    package func compare(
        _ stamps: [TransferStamp], in table: TransferTable
    ) async throws(StoreError) -> [TransferStanding] {
        let transfer = RowTransfer(table, state)
        return try await reading { (session, deadline) throws(PostgresError) in
            try transfer.compare(stamps, session, until: deadline)
        }
    }

    // MARK: - Changing

    package func take(
        _ rows: [TransferRow], into table: TransferTable
    ) async throws(StoreError) -> [TransferStanding] {
        let transfer = RowTransfer(table, state)
        return try await sessions.onThread { () throws(StoreError) in try transfer.take(rows, sessions) }
    }

    package func remove(
        _ places: [TransferPlaces.Place], from table: TransferTable
    ) async throws(StoreError) -> Int {
        try await sessions.performOnThread(within: Self.stepTime, repeats: true) {
            (session, deadline) throws(PostgresError) in
            try session.transaction(until: deadline) { () throws(PostgresError) in
                try RowPlaces(table, session, until: deadline).remove(places)
            }
        }
    }
}

extension StoredToken {
    /// The row for another store; nil if it does not open.
    fileprivate func transferred(_ coder: inout RowCoder) -> TransferRow? {
        guard let value, let token = try? token(&coder) else { return nil }
        return try? TransferRow(token, key: key, version: version, times: times, keyNumber: keyNumber, value: value)
    }
}
#endif
