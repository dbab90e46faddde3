import FoundationEssentials
import Glibc

/// How far the walk has come, and what it has found; kept in the store.
///
/// The walk looks after all rows. It goes over them again and again, some hundred at a time: it opens each, deletes it if it has
/// expired, seals it again if its key is not the one that seals, and counts. Nothing else deletes expired rows, replaces keys or
/// looks for damage. Locks, transactions and snapshots of the database last no longer than one step.
package struct WalkState: Codable, Hashable, Sendable {
    /// Whether the round has visited all tokens, and its sessions are next.
    package var areSessions = false
    /// The row after which the next step begins, in a form that only this store understands; nil to begin with the first row.
    package var place: String?
    /// The earliest time of the next step, in milliseconds since 1970 by the database's clock; nil unless servers share the database.
    package var notBefore: Int64?
    /// The round under way, with what it has found so far.
    package var present: WalkReport
    /// The last complete round; nil before the first one has ended.
    package var last: WalkReport?
    /// The largest number that a key of the ring has ever had, even if an earlier copy has replaced the ring's file; nil if unknown.
    package var newestKey: Int?

    /// The state before the first round.
    package init() {
        present = WalkReport(beganAt: Int64(time(nil)))
        present.round = 1
    }

    /// Reads the text of a state; nil if it is not one.
    package init?(_ text: String) {
        guard let state = try? JSONDecoder().decode(WalkState.self, from: Data(text.utf8)),
            [state.present, state.last].allSatisfy({ $0?.isPlausible ?? true }),
            state.notBefore.map({ (0...1 << 48).contains($0) }) ?? true
        else { return nil }
        self = state
    }

    package var text: String {
        (try? JSONEncoder().encode(self)).map { String(decoding: $0, as: UTF8.self) } ?? ""
    }

    /// Begins a new round at the first row, even if the present one is not complete.
    ///
    /// The new round makes the corrections that an incomplete one was to make.
    package mutating func begin() {
        let (number, misdated) = (present.round + 1, present.misdated)
        (areSessions, place, present) = (false, nil, WalkReport(beganAt: Int64(time(nil))))
        (present.round, present.misdated) = (number, misdated)
    }

    /// Ends the round, after it has visited all rows, and begins the next one.
    package mutating func end() {
        present.endedAt = Int64(time(nil))
        last = present
        present.misdated = nil
        begin()
    }
}

/// Which rows the walk deletes, and which times of writing it corrects.
package struct WalkRules: Sendable {
    package var retention: Retention
    /// The time by which rows expire, in seconds since 1970; nil while none may be deleted.
    package var expiryTime: Int64?
    /// Times of writing that are corrected to the end of the range, see `ExpiryClock.misdated`.
    var misdated: Range<Int64>
    /// Nil if nobody wants to see the tokens.
    var inspector: (any TokenInspector)?

    package init(
        _ retention: Retention, expiryTime: Int64?, misdated: Range<Int64> = 0..<0,
        inspector: (any TokenInspector)? = nil
    ) {
        (self.retention, self.expiryTime, self.misdated) = (retention, expiryTime, misdated)
        self.inspector = inspector
    }

    func deletes(_ times: RowTimes) -> Bool {
        guard let expiryTime, !retention.isUnlimited else { return false }
        return retention.deadline(writtenAt: times.writtenAt, expiresAt: times.expiresAt) <= expiryTime
    }

    func deletes(_ session: SessionRow) -> Bool {
        guard let expiryTime else { return false }
        if session.expiresAt <= expiryTime { return true }
        return retention.sessionIdleTimeout.map { session.usedAt < expiryTime - $0.components.seconds } ?? false
    }
}

/// Is shown each token that the walk opens.
package protocol TokenInspector: AnyObject, Sendable {
    /// Looks at a token; called on the walk's thread, maybe in the middle of a transaction, so it must return soon.
    ///
    /// - Returns: Whether it knew what to look for.
    func inspect(_ id: Span<UInt8>, _ tokenInfo: Span<UInt8>, _ version: TokenVersion, _ times: RowTimes) -> Bool
}

/// How fast the walk goes, if nobody waits for it.
package enum WalkPace {
    /// Rows of a step at most.
    package static let rows = 256
    /// Bytes of values after which a step ends, so that large tokens take neither much memory nor a long time.
    package static let bytes = 4 << 20

    /// How long a round takes: it ends within a day even if the server is stopped for some hours of it.
    private static let round = Duration.seconds(20 * 3_600)
    /// The longest pause, so that a store which is small at the moment is not left alone for hours while it grows.
    private static let longestPause = Duration.seconds(600)
    /// A pause is at least so many times as long as the step before it.
    private static let share = 20

    /// The pause after a step.
    ///
    /// - Parameters:
    ///   - rows: How many rows it has visited.
    ///   - total: How many the store has.
    ///   - duration: How long it took. Clients that keep the machine busy make it longer, and so slow the walk down.
    package static func pause(after rows: Int, of total: Int, took duration: Duration) -> Duration {
        let part = round * Double(max(1, rows)) / Double(max(1, total))
        return max(min(part, longestPause), duration * share)
    }
}
