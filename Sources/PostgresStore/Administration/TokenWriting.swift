#if PostgreSQL
internal import Glibc
internal import Synchronization
internal import System
internal import TokenStore

/// Stores some tokens for an operator, in one transaction.
struct TokenWriting: Sendable {
    struct Request: Sendable {
        let token: Token
        /// Seconds since 1970; nil for now.
        let writtenAt: Int64?
    }

    /// Of different ids.
    private let requests: [Request]
    private let keepsNewer: Bool
    private let state: PostgresState

    init(_ requests: [Request], keepsNewer: Bool, _ state: PostgresState) {
        self.requests = requests
        self.keepsNewer = keepsNewer
        self.state = state
    }

    /// How often a write is repeated with a later version, as others go on writing to the same rows.
    private static let rounds = 8

    /// Blocks its thread until the tokens are durable; gives an outcome for each.
    func outcomes(_ sessions: PrimarySessions) -> [Result<Void, StoreError>] {
        var outcomes = [Result<Void, StoreError>](repeating: .success(()), count: requests.count)
        var left = Array(requests.indices)
        for _ in 0..<Self.rounds where !left.isEmpty {
            do throws(StoreError) {
                left = try write(left, &outcomes, sessions)
            } catch {
                for index in left { outcomes[index] = .failure(error) }
                left = []
            }
        }
        for index in left { outcomes[index] = .failure(.write(Self.overtaken)) }
        let count = outcomes.count { (try? $0.get()) != nil }
        state.metrics.writes.add(UInt64(count), ordering: .relaxed)
        return outcomes
    }

    /// Writes some of the tokens.
    ///
    /// - Returns: Those that need a later version.
    private func write(
        _ indices: [Int], _ outcomes: inout [Result<Void, StoreError>], _ sessions: PrimarySessions
    ) throws(StoreError) -> [Int] {
        let (rows, places) = sealed(indices, &outcomes)
        var attempts = 0
        let kept = try sessions.perform(within: PostgresAdministrator.stepTime, repeats: true) {
            (session, deadline) throws(PostgresError) in
            attempts += 1
            return try session.transaction(until: deadline) { () throws(PostgresError) in
                try TokenRows(session, until: deadline).write(rows, keepsNewer ? .notNewer : .older)
            }
        }
        var left: [Int] = []
        for row in rows {
            guard let other = kept[row.key], let index = places[row.key] else { continue }
            state.versions.note(other.version)
            if keepsNewer, other.value != nil, other.times.writtenAt > row.times.writtenAt {
                outcomes[index] = .failure(.newer)
            } else if attempts > 1 {
                // The first attempt may have stored the token, which then was replaced: a repetition would undo that.
                outcomes[index] = .failure(.write(Self.overtaken))
            } else {
                left.append(index)
            }
        }
        return left
    }

    /// Makes rows of the present keys and with new versions.
    private func sealed(
        _ indices: [Int], _ outcomes: inout [Result<Void, StoreError>]
    ) -> (rows: [StoredToken], places: [[UInt8]: Int]) {
        var coder = RowCoder(state.sealing)
        var (rows, places) = ([StoredToken](), [[UInt8]: Int]())
        for index in indices {
            do throws(SealingError) {
                let row = try coder.row(
                    of: requests[index].token, writtenAt: requests[index].writtenAt ?? state.clock.unixTime)
                rows.append(
                    StoredToken(
                        key: row.key.bytes, version: state.versions.next(), times: row.times,
                        keyNumber: row.keyNumber, value: row.value))
                places[row.key.bytes] = index
            } catch {
                outcomes[index] = .failure(.sealing(error))
            }
        }
        return (rows, places)
    }

    private static let overtaken = StoreFault(
        "another write to the same id came in between, and it is unknown whether this one was stored; look at the token",
        mayRetry: true, isOfOneToken: true)
}
#endif
