#if PostgreSQL
internal import System
package import TokenStore

/// What a row has sealed it with: the key's number, and how many seals the key had made by then.
private typealias Seal = (keyNumber: Int, number: Int64)

extension PostgresAdministrator: StoreVerifier {
    /// Rows that are opened in one step.
    private static let verificationPage = 500

    /// Opens every row, a page at a time.
    ///
    /// Rows are sealed with their keys, times and numbers, so a row that opens is whole and in its place. The structure of the
    /// tables and indexes is checked by PostgreSQL's own tools.
    package func verify(
        _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreVerification {
        let total = try await statistics().tokens
        progress(StoreProgress(done: 0, total: total))
        var result = StoreVerification()
        var (key, uncounted) = ([UInt8](), 0)
        while true {
            let (rows, isLast) = try await rows(after: key, limit: Self.verificationPage)
            var latest: [Int: Int64] = [:]
            let seals = open(rows, &result)
            for seal in seals { latest[seal.keyNumber] = max(latest[seal.keyNumber] ?? 0, seal.number) }
            // Read after the rows, so that it is not behind any of them.
            let counted = latest.isEmpty ? [:] : try await sealCounts()
            uncounted += seals.count { $0.number > counted[$0.keyNumber] ?? 0 }
            progress(StoreProgress(done: min(result.tokens, total), total: total))
            guard !isLast, let last = rows.last else { break }
            key = last.key
            if Task.isCancelled { throw Self.interrupted }
        }
        try await verifySessions(&result)
        if uncounted > 0 {
            result.damages.append(
                """
                \(uncounted) \(uncounted == 1 ? "row was" : "rows were") sealed later than the store has counted: a part of \
                the database was replaced by one of another time
                """
            )
        }
        result.isSound = result.unreadable.isEmpty && result.damages.isEmpty
        return result
    }

    private static var interrupted: StoreError { .refused("verifying was interrupted") }

    /// Opens tokens, and notes what is wrong with them.
    ///
    /// - Returns: The seals of those that open.
    private func open(_ rows: [StoredToken], _ result: inout StoreVerification) -> [Seal] {
        var coder = RowCoder(state.sealing)
        var seals: [Seal] = []
        for row in rows {
            result.tokens += 1
            do throws(SealingError) {
                _ = try row.token(&coder)
                guard row.keyNumber > 0, let value = row.value else { continue }
                if let number = try TokenSealer.number(of: value.span) {
                    seals.append((row.keyNumber, Int64(number) + 1))
                } else {
                    result.unbound += 1
                }
            } catch {
                result.unreadable["\(error)", default: 0] += 1
            }
        }
        return seals
    }

    private func verifySessions(_ result: inout StoreVerification) async throws(StoreError) {
        var key: [UInt8]? = []
        while let start = key {
            let rows = try await reading { (session, deadline) throws(PostgresError) in
                try SessionRows(session, until: deadline).page(after: start, limit: Self.verificationPage)
            }
            var coder = RowCoder(state.sealing)
            for row in rows {
                do throws(SealingError) {
                    _ = try coder.open(row)
                } catch {
                    result.unreadable["\(error)", default: 0] += 1
                }
            }
            key = rows.count < Self.verificationPage ? nil : rows.last?.key
            if Task.isCancelled { throw Self.interrupted }
        }
    }

    /// How often each key has sealed at most, by its number.
    func sealCounts() async throws(StoreError) -> [Int: Int64] {
        try await reading { (session, deadline) throws(PostgresError) in
            try session.run("SELECT key_number, seals FROM seal", until: deadline) { (result) throws(PostgresError) in
                var counts: [Int: Int64] = [:]
                for row in 0..<result.rowCount { counts[Int(result.integer(row, 0))] = result.integer(row, 1) }
                return counts
            }
        }
    }
}
#endif
