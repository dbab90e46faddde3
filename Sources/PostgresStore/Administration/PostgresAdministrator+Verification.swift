#if PostgreSQL
internal import System
package import TokenStore

extension PostgresAdministrator: StoreVerifier {
    /// Rows that are opened in one step.
    private static let verificationPage = 500

    /// Opens every row, a page at a time.
    ///
    /// Rows are sealed with their keys and times, so a row that opens is whole and in its place. The structure of the
    /// tables and indexes is checked by PostgreSQL's own tools.
    package func verify(
        _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreVerification {
        let total = try await statistics().tokens
        progress(StoreProgress(done: 0, total: total))
        var result = StoreVerification()
        var key: [UInt8] = []
        while true {
            let (rows, isLast) = try await rows(after: key, limit: Self.verificationPage)
            open(rows, &result)
            progress(StoreProgress(done: min(result.tokens, total), total: total))
            guard !isLast, let last = rows.last else { break }
            key = last.key
            if Task.isCancelled { throw Self.interrupted }
        }
        try await verifySessions(&result)
        result.isSound = result.unreadable.isEmpty
        return result
    }

    private static var interrupted: StoreError { .refused("verifying was interrupted") }

    /// Opens tokens, and notes what is wrong with them.
    private func open(_ rows: [StoredToken], _ result: inout StoreVerification) {
        var coder = RowCoder(state.sealing)
        for row in rows {
            result.tokens += 1
            do throws(SealingError) {
                _ = try row.token(&coder)
            } catch {
                result.unreadable["\(error)", default: 0] += 1
            }
        }
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
}
#endif
