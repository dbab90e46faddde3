#if PostgreSQL
import System
import TokenStore

extension StoreAgreement {
    /// How long steps are taken with one connection before its host is looked at again.
    private static let stint = Nanoseconds(.milliseconds(500))
    private static let pauseWhenLocked = Duration.milliseconds(20)

    /// Walks over all rows at full speed, in a new round, of which servers beside this one may take steps too.
    ///
    /// - Parameter progress: Counted in tokens.
    func walk(_ progress: @escaping @Sendable (StoreProgress) -> Void) async throws(StoreError) -> WalkReport {
        let walk = Walk(state: state)
        var (total, round) = try await connections.performOnThread { (connection) throws(PostgresError) in
            (try connection.tokenEstimate().tokens, try walk.begin(on: connection))
        }
        progress(StoreProgress(done: 0, total: total))
        while true {
            if Task.isCancelled { throw .refused("the walk was interrupted; it goes on at its own pace") }
            let step = try await connections.performOnThread { [round] (connection) throws(PostgresError) in
                let end = MonotonicTime.now + Self.stint
                while true {
                    let step = try walk.step(.long, on: connection)
                    guard let state = step.state, state.present.round == round, .now < end else { return step }
                }
            }
            if let state = step.state {
                if let last = state.last, last.round >= round {
                    progress(StoreProgress(done: last.tokens, total: last.tokens))
                    return last
                }
                total = max(total, state.present.tokens)
                progress(StoreProgress(done: state.present.tokens, total: total))
                if state.present.round < round {
                    // The new primary has not received the beginning of the round.
                    round = try await connections.performOnThread { [round] (connection) throws(PostgresError) in
                        try walk.begin(round, on: connection)
                    }
                }
            } else {
                if step.isStale { try await connections.onThread { () throws(StoreError) in _ = try self.look() } }
                if let refusal = state.sealing.refusal { throw .sealing(refusal) }
                try? await Task.sleep(for: Self.pauseWhenLocked)
            }
        }
    }
}
#endif
