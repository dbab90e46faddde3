#if PostgreSQL
import Cryptography
import Glibc
import System
import TokenStore

/// What operations need to make and to open rows.
///
/// Each handle has one, for its thread.
final class RowAccess {
    let state: PostgresState
    var coder: RowCoder
    /// In seconds.
    private let timeout: Double

    /// - Parameter timeout: How long a request waits for the database.
    init(_ state: PostgresState, timeout: Duration) {
        (self.state, self.timeout) = (state, timeout / .seconds(1))
        coder = RowCoder(state.sealing)
    }

    /// When a request that begins now is given up, by `SystemUptime`.
    var deadline: Double { SystemUptime.now + timeout }

    /// Seconds since 1970.
    var unixTime: Int64 { Int64(time(nil)) }

    /// The earliest time of writing, and the earliest expiration time in a token, that have not expired.
    var horizon: (written: Int64, expired: Int64) {
        let horizon = state.retention.horizon(at: state.clock.expiryTime)
        return (horizon?.written ?? .min, horizon?.expired ?? .min)
    }

    /// Opens a row of the answer to `fetch` or `fetchAll`.
    func opened(_ result: borrowing QueryResult, _ row: Int, _ key: [UInt8]) throws(StoreError) -> Fetched {
        guard result.integer(row, 5) != 0 else { throw .sessionEnded }
        guard let number = result.optionalInteger(row, 0) else { return .nothing }
        let version = TokenVersion(rawValue: number)
        state.versions.note(version)
        let times = RowTimes(writtenAt: result.integer(row, 1), expiresAt: result.optionalInteger(row, 2))
        let deadline = state.retention.deadline(writtenAt: times.writtenAt, expiresAt: times.expiresAt)
        guard deadline > state.clock.expiryTime else { return .nothing }
        if result.isNull(row, 4) { return .longer }
        let keyNumber = result.keyNumber(row, 3)
        var tokenInfo: [UInt8] = []
        try counting { () throws(SealingError) in
            try result.withBytes(row, 4) { (value) throws(SealingError) in
                try coder.appendTokenInfo(of: value, keyNumber: keyNumber, key: key, times: times, to: &tokenInfo)
            }
        }
        return .found(tokenInfo, writtenAt: times.writtenAt, until: deadline, version: version)
    }

    /// Opens the row of a session.
    func opened(_ row: SessionRow) throws(StoreError) -> OpenedSession {
        try counting { () throws(SealingError) in try coder.open(row) }
    }

    /// Opens a row; one that does not open is counted for the metrics.
    private func counting<Value>(_ open: () throws(SealingError) -> Value) throws(StoreError) -> Value {
        do {
            return try open()
        } catch {
            state.count { $0.store.unreadableReads += 1 }
            throw .sealing(error)
        }
    }
}

extension PostgresConnection {
    func send(_ statement: Statement, _ parameters: Parameters) throws(PostgresError) {
        try send(statement.name, parameters)
    }
}

extension SessionRow {
    /// Reads a row of `Statement.sessionColumns`.
    init(_ result: borrowing QueryResult, row: Int) {
        self.init(
            bytes: { result.bytes(row, $0) },
            number: { $0 == 3 ? Int64(result.keyNumber(row, 3)) : result.integer(row, $0) })
    }
}

extension QueryResult {
    /// The number of the key that has sealed a row.
    func keyNumber(_ row: Int, _ column: Int) -> Int {
        let number = Int(integer(row, column))
        return number < Statement.damagedKeyNumber(0) ? Statement.damagedKeyNumber(number) : number
    }
}
#endif
