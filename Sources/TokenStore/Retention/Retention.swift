import Glibc
import Synchronization
import System

/// Which tokens and sessions are kept for how long.
///
/// Without a time of theirs, tokens are kept for ever, as by token.php.
package struct Retention: Hashable, Sendable {
    /// How long a token is kept after it was last written; nil for ever.
    package var afterWritten: Duration?
    /// How long a token is kept after the expiration in its token info; nil for ever.
    package var afterExpired: Duration?

    /// How long a session is kept after it was last used; nil until it expires.
    package var sessionIdleTimeout: Duration?

    package init(afterWritten: Duration? = nil, afterExpired: Duration? = nil, sessionIdleTimeout: Duration? = nil) {
        self.afterWritten = afterWritten
        self.afterExpired = afterExpired
        self.sessionIdleTimeout = sessionIdleTimeout
    }

    /// Whether every token is kept for ever.
    package var isUnlimited: Bool { afterWritten == nil && afterExpired == nil }

    /// The moment, in seconds since 1970, from which on a row is expired.
    package func deadline(writtenAt: Int64, expiresAt: Int64?) -> Int64 {
        var deadline = Int64.max
        if let afterWritten { deadline = Self.end(of: afterWritten, from: writtenAt) }
        if let afterExpired, let expiresAt { deadline = min(deadline, Self.end(of: afterExpired, from: expiresAt)) }
        return deadline
    }

    /// The moment after a time, without overflow: the rows of a manipulated file may hold any number.
    private static func end(of time: Duration, from start: Int64) -> Int64 {
        let (end, hasOverflowed) = start.addingReportingOverflow(time.components.seconds + 1)
        return hasOverflowed ? .max : end
    }

    /// Tokens with earlier times than these, in seconds since 1970, are expired.
    package struct Horizon: Hashable {
        /// Of the writing.
        package let written: Int64?
        /// Of the token's own expiration.
        package let expired: Int64?
    }

    /// For tokens; nil when all are kept.
    package func horizon(at now: Int64) -> Horizon? {
        guard !isUnlimited else { return nil }
        return Horizon(
            written: afterWritten.map { now - $0.components.seconds },
            expired: afterExpired.map { now - $0.components.seconds }
        )
    }
}

/// The time by which a store dates what it writes, and what it hides and deletes: the wall clock, held against an `ExpiryClock`.
///
/// A machine may begin to serve before its clock is set. A token that is then dated 400 days back would be deleted as soon as the
/// clock is right. So when the wall clock goes back by more than a day, this time goes on as before, also after a restart, until
/// the wall clock has stayed there for twelve hours. When the wall clock goes ahead, this time follows at once: the server may
/// have been stopped for days, and a token that is dated too late is only kept longer.
///
/// Any thread.
package final class StoreClock: Sendable {
    private let clock = Mutex(ExpiryClock(saved: nil, at: .now))
    /// A time that was trusted: an earlier one is looked at closely.
    private let trusted = Atomic<Int64>(0)
    private let isHolding = Atomic<Bool>(false)

    package init() {}

    /// In seconds since 1970; costs little more than reading the wall clock.
    package var unixTime: Int64 {
        let wall = Int64(time(nil))
        guard wall < trusted.load(ordering: .relaxed) else { return wall }
        return use { $0.unixTime(at: .now) }
    }

    /// The time by which tokens expire, in seconds since 1970: while nothing is deleted, nothing is hidden by the new time either.
    package var expiryTime: Int64 {
        let wall = Int64(time(nil))
        guard wall - trusted.load(ordering: .relaxed) > ExpiryClock.tolerance else { return wall }
        return use { $0.expiryTime(at: .now) }
    }

    /// Whether nothing that has expired is deleted, as the clock has jumped.
    package var isHoldingExpiry: Bool { isHolding.load(ordering: .relaxed) }

    /// Whether what has expired may be deleted; used by one thread.
    ///
    /// - Parameters:
    ///   - isExpiring: Whether something expires at all; otherwise no deletion is held back either.
    ///   - report: Called when that changes.
    package func mayDelete(isExpiring: Bool = true, _ report: (StoreEvent) -> Void) -> Bool {
        let (isJump, deviation) = use { ($0.holdsExpiry, $0.deviation) }
        let holds = isJump && isExpiring
        let before = isHoldingExpiry
        if holds && !before { report(.expiryHeld(seconds: deviation, confirmation: ExpiryClock.confirmation)) }
        if before && !holds && isExpiring { report(.expiryGoesOn) }
        isHolding.store(holds, ordering: .relaxed)
        return !isJump
    }

    /// Looks at the clock, or begins with another one.
    package func use<Result: Sendable>(_ body: (inout ExpiryClock) -> Result) -> Result {
        clock.withLock { clock in
            let result = body(&clock)
            trusted.store(clock.trusted.wall, ordering: .relaxed)
            return result
        }
    }
}

/// Decides whether the wall clock can be trusted for deleting expired tokens, which cannot be undone.
///
/// Compares the wall clock with the system's uptime, including suspension. If they differ by more than a day since the
/// last comparison, nothing is deleted until one of these has happened:
/// - the wall clock is right again, give or take a day;
/// - both have agreed for twelve hours since the jump: nobody has corrected the clock, so it is taken as right.
///
/// If the later time of two is taken as right, what was written by the earlier one is misdated: callers first date it again.
///
/// It is unknown how long a server was stopped. So the time of the last comparison is stored, and a start more than a
/// day away from it counts as a jump: after days without the server, deleting begins twelve hours late.
///
/// It only decides: callers pass the time, and delete.
package struct ExpiryClock: Sendable {
    /// A reading of both clocks, in seconds.
    package struct Reading: Equatable, Sendable {
        /// Since 1970.
        package var wall: Int64
        /// Since the system's start.
        package var running: Int64

        package static var now: Reading {
            Reading(wall: Int64(time(nil)), running: SystemUptime.seconds)
        }
    }

    /// Seconds by which the clocks may diverge between two comparisons.
    static let tolerance: Int64 = 86_400
    /// Seconds for which they must agree after a jump.
    static let confirmation: Int64 = 12 * 3_600
    /// Before 2026 this program did not exist.
    private static let beginning: Int64 = 1_767_225_600
    /// Seconds after which the time of the last comparison is stored again.
    package static let savingInterval: Int64 = 3_600

    /// The last reading that was trusted.
    fileprivate private(set) var trusted: Reading
    /// From this time on, the clock was trusted without a jump; 0 if it was wrong for certain.
    private var era: Int64
    /// The first and the last readings since a jump, until it is known whether the clock is right.
    private var jump: (first: Reading, last: Reading)?
    private var saved: Int64?
    /// For how many seconds the last process may have run after the look that it stored, telling clients what had expired.
    private var unsavedSeconds: Int64
    private var hasWritten = false

    /// - Parameters:
    ///   - saved: The stored time of the last comparison; nil if there is none, in which case the clock is trusted.
    ///   - now: What the clocks say now.
    package init(saved: Int64?, at now: Reading) {
        // A manipulated file may hold any number.
        let saved = saved.map { min(max($0, 0), 1 << 40) }
        self.saved = saved
        unsavedSeconds = saved == nil ? 0 : Self.savingInterval
        trusted = Reading(wall: saved ?? now.wall, running: now.running)
        // Even if the clock is behind at the start, nothing is dated before the stored look: see `unixTime`.
        era = trusted.wall < Self.beginning ? 0 : max(now.wall, trusted.wall)
        look(at: now)
    }

    /// Whether nothing may be deleted for now.
    package var holdsExpiry: Bool { jump != nil }

    /// Seconds by which the wall clock is ahead of the expected time; negative if it is behind.
    package var deviation: Int64 { jump.map { Self.deviation($0.last, from: trusted) } ?? 0 }

    /// Compares the clocks; required before each deletion.
    package mutating func look(at now: Reading) {
        guard Self.isFar(now, from: trusted) else {
            (trusted, jump, unsavedSeconds) = (now, nil, 0)
            return
        }
        if let first = jump?.first, let last = jump?.last, !Self.isFar(now, from: last) {
            jump = (first, now)
            if misdated == nil { accept() }
        } else {
            jump = (now, now)
        }
    }

    /// Times of writing that a clock has given which is now known to have been wrong; the callers date these rows by the end of the
    /// range, and then `accept`.
    package var misdated: Range<Int64>? {
        guard isConfirmed, let right = jump?.first.wall, era < right else { return nil }
        return era..<right
    }

    private var isConfirmed: Bool { jump.map { $0.last.running - $0.first.running >= Self.confirmation } ?? false }

    /// Takes the clock as right if it has agreed for long enough.
    package mutating func accept() {
        guard isConfirmed, let last = jump?.last else { return }
        (trusted, era, jump, unsavedSeconds) = (last, last.wall, nil, 0)
    }

    /// The wall clock's time, or that which is expected if it is set back by more.
    mutating func unixTime(at now: Reading) -> Int64 {
        look(at: now)
        return max(now.wall, expected(at: now))
    }

    /// The wall clock's time, or that which is expected if it has jumped ahead.
    mutating func expiryTime(at now: Reading) -> Int64 {
        look(at: now)
        return jump == nil ? now.wall : min(now.wall, expected(at: now) + unsavedSeconds)
    }

    private func expected(at now: Reading) -> Int64 { trusted.wall + now.running - trusted.running }

    private static func isFar(_ now: Reading, from last: Reading) -> Bool {
        !(-tolerance...tolerance).contains(deviation(now, from: last))
    }

    private static func deviation(_ now: Reading, from last: Reading) -> Int64 {
        (now.wall - last.wall) - (now.running - last.running)
    }

    // MARK: - Storing the last look

    /// Something was written to the store.
    package mutating func noteWrite() {
        hasWritten = true
    }

    /// The time to store as that of the last comparison; nil if that is not due.
    ///
    /// Never due for a store that keeps tokens for ever and is not written to.
    package func due(isExpiring: Bool) -> Int64? {
        guard jump == nil, isExpiring || hasWritten else { return nil }
        guard let saved, (saved...(saved + Self.savingInterval)).contains(trusted.wall) else { return trusted.wall }
        return nil
    }

    package mutating func noteSaved(_ time: Int64) {
        (saved, hasWritten) = (time, false)
    }
}
