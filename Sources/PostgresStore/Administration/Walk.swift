#if PostgreSQL
import Glibc
import System
import TokenStore

/// The walk over all rows, of which the servers of a database take the steps, one at a time.
///
/// No server leads. A step is one transaction, which locks the state of the walk in the table `store`: a server that finds it
/// locked leaves the step to the one that has it. So the pace does not depend on the number of servers, and a server that ends in
/// the middle of a step, or a failover, leaves nothing behind. Rows that clients have locked are left out, so a step waits for
/// nobody.
struct Walk: Sendable {
    let state: PostgresState

    /// How many pages of 8 KiB a step reads.
    enum Stride: Int64 {
        /// Some hundred rows.
        case short = 16
        /// For a round that somebody waits for.
        case long = 256
    }

    /// How a step has ended.
    struct Step {
        /// Nil if the step was left to another server, or is not due yet.
        var state: WalkState?
        /// How long to wait before the next one.
        var pause: Duration
        /// Whether this process must first learn which key seals.
        var isStale = false
    }

    /// What a first pass over the rows of a step has found.
    private struct FirstPass {
        /// The text of the walk's state before the step.
        let state: String
        let place: RowPlace
        let next: RowPlace?
        let portions: [[Resealed]]
        var report: WalkReport
        /// Whether a damaged page kept rows from being sealed again.
        var hasMetDamage = false

        mutating func noteMoved(_ places: [Int64]) { report.noteMoved(places, in: .token, before: next) }
    }

    /// How long the rows of removed tokens are kept, in seconds: much longer than any write can be delayed.
    static let tombstoneTime: Int64 = 3_600
    /// The time between two looks whether a step is due that another server has taken.
    private static let look = Duration.seconds(1)
    /// A longer pause, in milliseconds, was set by a clock that was wrong, and is ignored.
    private static let longestPause: Int64 = 3_600_000

    private static let now = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    /// Has the statements of a transaction find each row by its place or key.
    ///
    /// PostgreSQL would otherwise read a small table as a whole, and so meet its damaged pages.
    private static let planning = ["seqscan", "hashjoin", "mergejoin"]
        .map { "set_config('enable_\($0)', 'off', true)" }.joined(separator: ", ")
    private static let lock = """
        SELECT walk, \(now), \(RowTable.session.pages) > 0, sealing_key,
            \(RowTable.token.pages) + \(RowTable.session.pages), \(planning)
        FROM store WHERE one = 1 FOR UPDATE SKIP LOCKED
        """

    /// For changes that a crash or a failover may undo, as the step is then taken again.
    private static let unsynced = "SELECT set_config('synchronous_commit', 'off', true)"

    /// Begins a new round, even if the present one is not complete; returns its number.
    ///
    /// - Parameter least: The number that it has at least.
    func begin(_ least: Int = 0, on connection: BlockingConnection) throws(PostgresError) -> Int {
        try connection.transaction { () throws(PostgresError) in
            let found = try connection.run("SELECT walk FROM store WHERE one = 1 FOR UPDATE")
            var walk = found.rowCount > 0 ? WalkState(found.text(0, 0)) ?? WalkState() : WalkState()
            walk.begin()
            walk.present.round = max(walk.present.round, least)
            try connection.run("UPDATE store SET walk = $1::text WHERE one = 1", [.text(walk.text)])
            return walk.present.round
        }
    }

    /// Takes the next step if it is due; with a long stride, it always is.
    ///
    /// A statement that reads a damaged page fails as a whole. The step is then repeated with a single page, and passes over it if it
    /// is the damaged one. So each step takes the walk on, and a round ends however many pages are damaged.
    func step(_ stride: Stride = .short, on connection: BlockingConnection) throws(PostgresError) -> Step {
        if stride == .short {
            // Asked without a lock, which would be written to the disk.
            let found = try connection.run("SELECT walk, \(Self.now) FROM store WHERE one = 1")
            if found.rowCount > 0, let walk = WalkState(found.text(0, 0)) {
                state.note(walk)
                if let left = left(walk, at: found.integer(0, 1)) { return Step(pause: left) }
            }
        }
        do {
            return try take(stride, on: connection)
        } catch {
            guard error.isOfDamage else { throw error }
            return try take(stride, isCareful: true, on: connection)
        }
    }

    /// - Parameter isCareful: Whether to visit one page only, which may be damaged.
    private func take(
        _ stride: Stride, isCareful: Bool = false, on connection: BlockingConnection
    ) throws(PostgresError) -> Step {
        let began = MonotonicTime.now
        var (clockLook, expired, rekeyed) = (Int64?.none, 0, 0)
        var (taken, first) = (Step?.none, FirstPass?.none)
        // If many rows are to be sealed again, that is done in portions between two passes. PostgreSQL may move rows to other pages
        // then, so the first pass counts them, and the second one only changes what is left.
        while taken == nil {
            taken = try connection.transaction { () throws(PostgresError) -> Step? in
                let found = try connection.run(Self.lock)
                guard found.rowCount > 0 else { return Step(pause: Self.look) }
                let text = found.text(0, 0)
                var walk = WalkState(text) ?? WalkState()
                let now = found.integer(0, 1)
                // Another server may have taken the step meanwhile.
                let former = first.flatMap { $0.state == text ? $0 : nil }
                if stride == .short, let left = left(walk, at: now) { return Step(pause: left) }
                correctTimes(&walk, database: now / 1_000)
                let rules = WalkRules(
                    state.retention,
                    expiryTime: expiryTime(hasSessions: found.integer(0, 2) != 0, database: now / 1_000),
                    misdated: walk.present.misdated ?? 0..<0, inspector: state.inspector)
                var step = WalkStep(walk.present, state.sealing, rules)
                // A server that does not know yet which key seals would undo what others do.
                guard state.sealing.refusal == nil,
                    found.optionalInteger(0, 3) ?? Int64(step.activeKey) == step.activeKey
                else { return Step(pause: Self.look, isStale: true) }
                let known = former?.place ?? walk.place.flatMap(RowPlace.init)
                let place = if let known { known } else { try connection.firstPlace() }
                let next: RowPlace?
                if isCareful {
                    (next, expired) = try visitPage(after: place, &step, on: connection)
                } else {
                    // After rows have moved to other pages, the second pass would otherwise read on, to rows that the first one has not
                    // counted.
                    let (rows, following) = try connection.rows(
                        after: place, pages: stride.rawValue, upTo: former?.next)
                    next = following
                    for row in rows { try step.visit(row) }
                    if let former {
                        step.keepCounts(of: former.report)
                    } else if first == nil, place.table == .token {
                        let pass = FirstPass(
                            state: text, place: place, next: next, portions: step.portions, report: step.report)
                        first = pass
                        if !pass.portions.isEmpty { return nil }
                    }
                    expired = try step.finish(
                        connection, place.table, before: next, rekeyed: rekeyed,
                        isCareful: former?.hasMetDamage ?? false)
                }
                walk.present = step.report
                (walk.place, walk.areSessions) = (next?.description, next?.table == .session)
                if next == nil { walk.end() }
                let took = Duration.nanoseconds((.now - began).count)
                let pause = WalkPace.pause(
                    after: isCareful ? 1 : Int(stride.rawValue), of: Int(found.integer(0, 4)), took: took)
                walk.notBefore = now + Int64(pause / .milliseconds(1))
                clockLook = state.clock.use { $0.due(isExpiring: true) }
                if !step.hasChanges { try connection.run(Self.unsynced) }
                try connection.run(
                    "UPDATE store SET walk = $1::text, looked_at = coalesce($2::bigint, looked_at) WHERE one = 1",
                    [.text(walk.text), .bigint(clockLook)])
                return Step(state: walk, pause: pause)
            }
            guard taken == nil else { break }
            for portion in first?.portions ?? [] {
                do {
                    let places = try connection.transaction { () throws(PostgresError) in
                        try connection.run("\(Self.unsynced), \(Self.planning)")
                        return try connection.replace(portion, in: .token)
                    }
                    rekeyed += places.count
                    first?.noteMoved(places)
                } catch {
                    guard error.isOfDamage else { throw error }
                    first?.hasMetDamage = true
                }
            }
        }
        let step = taken ?? Step(pause: Self.look)
        state.count { $0.store.expired += UInt64(expired) }
        if let walk = step.state {
            if let clockLook { state.clock.use { $0.noteSaved(clockLook) } }
            state.note(walk)
            if walk.place == nil, let last = walk.last, last.expired > 0 { state.report(.expired(count: last.expired)) }
        }
        return step
    }

    /// Visits a page; if it is damaged, leaves it as it is and notes the damage.
    ///
    /// - Returns: The next place, and how many tokens have expired.
    private func visitPage(
        after place: RowPlace, _ step: inout WalkStep, on connection: BlockingConnection
    ) throws(PostgresError) -> (next: RowPlace?, expired: Int) {
        let before = step.report
        try connection.run("SAVEPOINT page")
        do {
            let (rows, next) = try connection.rows(after: place, pages: 1)
            for row in rows { try step.visit(row) }
            return (next, try step.finish(connection, place.table, before: next, isCareful: true))
        } catch {
            guard error.isOfDamage else { throw error }
            try connection.run("ROLLBACK TO SAVEPOINT page")
            step.noteDamage(of: place, error, before)
            return (try connection.place(behind: place), 0)
        }
    }

    /// How long the next step is to wait for; nil if it is due.
    private func left(_ walk: WalkState, at now: Int64) -> Duration? {
        let left = (walk.notBefore ?? 0) - now
        return (1...Self.longestPause).contains(left) ? .milliseconds(left) : nil
    }

    /// Begins a round that corrects the dates which this server's clock gave while it was wrong.
    ///
    /// When the round has ended, the clock is taken as right. Without it, rows that were dated too early would then be deleted at once.
    /// The database's clock does not prevent that: on the same machine, it was wrong as well. The times are kept in the state of the
    /// walk, as any server may take the round's steps. Rows that other servers dated correctly in that time are only kept longer. Times
    /// that end later than the database's present time are ignored, because rows would be kept far too long.
    func correctTimes(_ walk: inout WalkState, database: Int64) {
        state.clock.use { clock in
            clock.look(at: .now)
            guard let misdated = clock.misdated, misdated.upperBound <= database, state.retention.afterWritten != nil,
                walk.last?.corrects(misdated) != true
            else { return clock.accept() }
            guard !walk.present.corrects(misdated) else { return }
            let known = walk.present.misdated ?? misdated
            walk.present.misdated =
                min(known.lowerBound, misdated.lowerBound)..<max(known.upperBound, misdated.upperBound)
            walk.begin()
        }
    }

    /// The time by which rows expire; nil while nothing may be deleted.
    ///
    /// It is the earlier one of this machine's and the database's, so that nothing is deleted that other servers still need.
    func expiryTime(hasSessions: Bool, database: Int64) -> Int64? {
        let reading = ExpiryClock.Reading.now
        state.clock.use { $0.look(at: reading) }
        // If nothing expires, no deletion is held back either.
        let isExpiring = !state.retention.isUnlimited || hasSessions
        return state.clock.mayDelete(isExpiring: isExpiring, state.report) ? min(reading.wall, database) : nil
    }
}

/// What a step of the walk does with rows, all of one table.
struct WalkStep: ~Copyable {
    private var visitor: WalkVisitor
    let activeKey: Int
    private var expired: [ExpiredRow] = []
    private var sealed: [Resealed] = []
    /// The keys that `sealed` were sealed with.
    private var formerKeys: Set<Int> = []
    private var visited = 0

    /// How long rows that a client has locked are waited for before they are left as they are: usually for one commit.
    private static let patience: UInt32 = 20_000

    init(_ report: WalkReport, _ sealing: Sealing, _ rules: WalkRules) {
        visitor = WalkVisitor(sealing, report, rules)
        activeKey = visitor.activeKey
    }

    var report: WalkReport { visitor.report }

    /// Whether rows are to be deleted or sealed again.
    var hasChanges: Bool { !expired.isEmpty || !sealed.isEmpty }

    /// The rows that are sealed again, if they are many, in portions of a few rows of each page: with the space that one has freed,
    /// PostgreSQL keeps the next one in the page, while all at once would double the table.
    var portions: [[Resealed]] {
        let count = 8
        guard sealed.count > visited / count else { return [] }
        return (0..<count).map { first in stride(from: first, to: sealed.count, by: count).map { sealed[$0] } }
    }

    /// Takes over the counts of an earlier pass over the same rows.
    mutating func keepCounts(of report: WalkReport) {
        let keyNumbers = visitor.report.keyNumbers
        visitor.report = report
        visitor.report.keyNumbers.formUnion(keyNumbers)
    }

    mutating func visit(_ row: StoredRow) throws(PostgresError) {
        visited += 1
        do {
            switch row {
            case .token(let token):
                let mark = token.version.rawValue
                guard let value = token.value else {
                    if let now = visitor.rules.expiryTime, token.times.writtenAt < now - Walk.tombstoneTime {
                        expired.append((token.key, token.place, mark))
                    }
                    return
                }
                let verdict = try visitor.visit(
                    value.span, keyNumber: token.keyNumber, key: token.key, token.times, token.version, row.name)
                note(verdict, token.key, token.place, mark, token.keyNumber)
            case .session(let session):
                let verdict = try visitor.visit(session, row.name)
                if case .expires = verdict {
                    expired.append((session.key, 0, session.usedAt))
                } else {
                    note(verdict, session.key, 0, session.number, session.keyNumber)
                }
            }
        } catch {
            // Every row would fail for the same reason, that this server and the database do not agree.
            throw .unexpected("\(error)")
        }
    }

    private mutating func note(
        _ verdict: WalkVerdict, _ key: [UInt8], _ place: Int64, _ mark: Int64, _ formerKey: Int
    ) {
        switch verdict {
        case .stays: break
        case .expires: expired.append((key, place, mark))
        case .sealed(let value, let keyNumber, let times):
            sealed.append((key, place, mark, keyNumber, times.writtenAt, value))
            formerKeys.insert(formerKey)
        }
    }

    /// Notes that rows cannot be read or changed, and forgets what was to be done with them.
    ///
    /// - Parameter report: What the round had found before it came to these rows.
    mutating func noteDamage(of place: RowPlace, _ error: PostgresError, _ report: WalkReport) {
        (visitor.report, expired, sealed) = (report, [], [])
        if let page = place.page {
            let text = "rows on page \(page) of the table \(place.table) cannot be read or changed: \(error.text)"
            visitor.report.noteDamage(text)
        } else {
            visitor.report.noteDamage("sessions cannot be read in the order of their keys: \(error.text)")
            // All sessions are visited again, from the first one on.
            visitor.report.sessions = 0
        }
    }

    /// Changes the rows that need it, without waiting long for clients; returns how many tokens have expired.
    ///
    /// - Parameters:
    ///   - next: The place that the walk visits next.
    ///   - before: How many tokens of this step were sealed again in portions before.
    ///   - isCareful: Whether rows stay as they are if PostgreSQL would move them to a damaged page.
    mutating func finish(
        _ connection: BlockingConnection, _ table: RowTable, before next: RowPlace? = nil, rekeyed before: Int = 0,
        isCareful: Bool = false
    ) throws(PostgresError) -> Int {
        let deleted = try connection.delete(expired, from: table)
        visitor.report.expired += deleted
        var places: [Int64] = []
        if isCareful { try connection.run("SAVEPOINT sealing") }
        do {
            places = try connection.replace(sealed, in: table)
            if places.count < sealed.count {
                usleep(Self.patience)
                places += try connection.replace(sealed, in: table)
            }
        } catch {
            guard isCareful, error.isOfDamage else { throw error }
            try connection.run("ROLLBACK TO SAVEPOINT sealing")
            places = []
            // Many rows may be about to move to the same page.
            let text = "rows cannot be sealed again: \(error.text)"
            if !report.damages.contains(text) { visitor.report.noteDamage(text) }
        }
        let rekeyed = places.count
        if rekeyed + before > 0 { visitor.report.noteOpened(keyNumber: activeKey) }
        if rekeyed < sealed.count {
            for number in formerKeys { visitor.report.noteOpened(keyNumber: number) }
        }
        visitor.report.noteMoved(places, in: table, before: next)
        guard table == .token else { return 0 }
        visitor.report.rekeyed += rekeyed + before
        return deleted
    }
}

extension WalkReport {
    /// Uncounts rows that the walk itself has moved to where it will visit, and count, them again.
    ///
    /// - Parameters:
    ///   - places: Where it has written rows.
    ///   - next: The place that it visits next.
    fileprivate mutating func noteMoved(_ places: [Int64], in table: RowTable, before next: RowPlace?) {
        guard let next, next.table == table else { return }
        let count = places.count { next.isBefore($0) }
        if table == .token { tokens -= count } else { sessions -= count }
    }
}
#endif
