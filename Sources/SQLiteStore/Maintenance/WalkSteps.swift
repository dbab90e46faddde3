import Glibc
import Metrics
import Synchronization
import TokenStore

/// The steps of a walk.
///
/// A step reads and opens some rows with a connection of its own. What it changes is handed to the writer, as one transaction.
///
/// Used by one thread.
struct WalkSteps: ~Copyable {
    private let store: OpenDatabase
    /// Reads a round's next rows; nil before the first step, and after a fault.
    private var rows: StoredRows?
    /// The store's generation, and the round, when `rows` was made.
    private var (generation, round): (UInt64, Int) = (0, 0)
    /// The state that was last saved in the store, and when.
    private var saved: (state: WalkState, at: ContinuousClock.Instant)
    /// The round that corrects times of writing, see `ExpiryClock.misdated`; nil if none does.
    private var redatingRound: Int?
    /// Keys that were reported as missing.
    private var reportedKeys: Set<Int> = []
    private var visitor: WalkVisitor

    /// How often the state is saved while steps change nothing.
    private static let savingInterval = Duration.seconds(30)

    /// - Parameters:
    ///   - store: An open store.
    ///   - state: The state that is saved in it.
    init(_ store: OpenDatabase, _ state: WalkState) {
        (self.store, saved) = (store, (state, .now))
        visitor = WalkVisitor(store.state.sealing, state.present, WalkRules(Retention(), expiryTime: nil))
    }

    /// Whether the present round makes no pauses.
    var isUrgent: Bool { redatingRound != nil }

    /// Makes the next step read with a new connection, after an error.
    mutating func forget() { rows = nil }

    /// Saves which key is the newest, unless a step has.
    mutating func finish(_ state: WalkState) {
        guard state.newestKey != saved.state.newestKey else { return }
        _ = try? apply(WalkChanges(), state, isEnd: true)
    }

    /// Visits the next rows.
    ///
    /// - Returns: The state after the step, and how many rows it has visited.
    mutating func step(from start: WalkState) throws(StoreError) -> (state: WalkState, rows: Int) {
        let (clock, retention, now) = (store.state.clock, store.state.retention, Int64(time(nil)))
        var state = start
        clock.use { $0.look(at: .now) }
        let misdated = misdated(clock, &state)
        let isHeld = clock.use(\.holdsExpiry)
        visitor.rules = WalkRules(
            retention, expiryTime: store.options.isServing && !isHeld ? now : nil, misdated: misdated,
            inspector: store.options.inspector)
        visitor.report = state.present
        let rows = try rows(of: state)
        var (changes, count, isEnd) = (WalkChanges(), 0, false)
        do {
            while count < WalkPace.rows, changes.readBytes < WalkPace.bytes, !isEnd {
                do {
                    guard let row = try rows.next() else {
                        isEnd = true
                        break
                    }
                    count += 1
                    // Nothing keeps the keys of this store from sealing.
                    try? visit(row, rows.statement, &changes)
                } catch {
                    // Counted like a row, so that a step ends however many pages are damaged.
                    count += 1
                    visitor.report.noteDamage(try rows.skipDamage(error))
                }
            }
            try rows.rest()
        } catch {
            throw .read(StoreFault(error))
        }
        visitor.report.expired += changes.expiredTokens.count + changes.expiredSessions.count
        report(visitor.report)
        var next = state.after(visitor.report, rows, isEnd: isEnd)
        if try !apply(changes, next, isEnd: isEnd) {
            // One by one, so that a damaged page prevents only the changes that touch it.
            for change in changes.oneByOne where try !apply(change, state, isEnd: false) {
                visitor.report.noteFailure(of: change)
            }
            next = state.after(visitor.report, rows, isEnd: isEnd)
            _ = try apply(WalkChanges(), next, isEnd: isEnd)
        }
        if isEnd, redatingRound == start.present.round {
            clock.use { $0.accept() }
            redatingRound = nil
        }
        return (next, count)
    }

    /// The rows of the round that follow those of the last step.
    private mutating func rows(of state: WalkState) throws(StoreError) -> StoredRows {
        let current = store.state.generation.load(ordering: .acquiring)
        if let rows, current == generation, state.present.round == round { return rows }
        let made = try StoreError.reading { () throws(SQLiteError) in
            let connection = try SQLiteConnection(path: store.path, mode: .readOnly)
            return try StoredRows(connection, from: state)
        }
        (rows, generation, round) = (made, current, state.present.round)
        return made
    }

    /// Times of writing to correct, see `ExpiryClock.misdated`.
    ///
    /// If there are any, the present round begins again, so that it reaches all of these rows. It does so even while nothing expires,
    /// because a retention may be set later.
    private mutating func misdated(_ clock: StoreClock, _ state: inout WalkState) -> Range<Int64> {
        guard let misdated = clock.use(\.misdated) else {
            clock.use { $0.accept() }
            redatingRound = nil
            return 0..<0
        }
        if redatingRound != state.present.round {
            let number = state.present.round
            state.begin()
            state.present.round = number
            (rows, redatingRound) = (nil, number)
        }
        return misdated
    }

    private mutating func visit(
        _ row: StoredRows.Row, _ statement: SQLiteStatement, _ changes: inout WalkChanges
    ) throws(SealingError) {
        switch row {
        case .token(let token):
            guard token.isInPlace else {
                visitor.report.noteToken(writtenAt: token.times.writtenAt)
                return visitor.report.noteUnreadable(.misplaced, row.name)
            }
            let verdict = try statement.withBlob(at: 6) { (value) throws(SealingError) in
                changes.readBytes += value.count
                return try visitor.visit(
                    value, keyNumber: token.keyNumber, key: token.key, token.times, token.version, row.name)
            }
            switch verdict {
            case .stays: break
            case .expires: changes.expiredTokens.append((token.slot, token.version))
            case .sealed(let value, let keyNumber, let times):
                changes.tokens.append((token.slot, token.version, value, keyNumber, times.writtenAt))
                visitor.report.noteOpened(keyNumber: keyNumber)
                visitor.report.rekeyed += 1
            }
        case .session(let session):
            switch try visitor.visit(session, row.name) {
            case .stays: break
            case .expires: changes.expiredSessions.append(session)
            case .sealed(let user, let keyNumber, _):
                changes.sessions.append((session.key, user, keyNumber))
                visitor.report.noteOpened(keyNumber: keyNumber)
            }
        }
    }

    /// Makes the changes of a step durable together with the new state; without changes, the state is saved now and then.
    ///
    /// - Returns: False if nothing was changed, because the changes touch a damaged page.
    private mutating func apply(
        _ changes: WalkChanges, _ state: WalkState, isEnd: Bool
    ) throws(StoreError) -> Bool {
        guard !changes.isEmpty || isSavingDue(state, isEnd: isEnd) else { return true }
        if !changes.expiredTokens.isEmpty, let now = visitor.rules.expiryTime {
            store.state.observer?.willExpire(until: now)
        }
        let (text, current, rules) = (state.text, store.state, visitor.rules)
        let removed: Int
        do throws(StoreError) {
            let outcome: Result<Int, SQLiteError> = try store.writerThread.performAndWait {
                (writer) throws(SQLiteError) in
                do throws(SQLiteError) {
                    // The retention may have been changed meanwhile, so that these rows have not expired.
                    let deletes = current.retention == rules.retention
                    return .success(try writer.apply(changes, deletes: deletes, walk: text))
                } catch {
                    // Clients need not notice: they write elsewhere, or less than this on a disk that is nearly full.
                    guard error.isNotADatabase || error.isTransient else { throw error }
                    return .failure(error)
                }
            }
            switch outcome {
            case .success(let count): removed = count
            case .failure(let error) where error.isNotADatabase: return false
            case .failure(let error): throw .write(StoreFault(error))
            }
        } catch {
            // Rows are looked at also while nothing can be written.
            guard changes.isEmpty else { throw error }
            return true
        }
        saved = (state, .now)
        guard removed > 0 else { return true }
        store.state.metrics.expired.add(UInt64(removed))
        store.options.report(.expired(count: removed))
        return true
    }

    /// Whether the state has to be saved although the step has changed nothing.
    ///
    /// A store at rest is hardly ever written to.
    private func isSavingDue(_ state: WalkState, isEnd: Bool) -> Bool {
        if state.newestKey != saved.state.newestKey { return true }
        guard isEnd, let last = state.last else { return .now - saved.at >= Self.savingInterval }
        guard var former = saved.state.last, let end = last.endedAt, let formerEnd = former.endedAt else { return true }
        (former.round, former.beganAt, former.endedAt) = (last.round, last.beganAt, last.endedAt)
        return former != last || !(formerEnd...(formerEnd + ExpiryClock.savingInterval)).contains(end)
    }

    private mutating func report(_ present: WalkReport) {
        for number in present.missingKeys.subtracting(reportedKeys) {
            reportedKeys.insert(number)
            store.options.report(.missingKey(number: number))
        }
    }
}

extension WalkState {
    /// The state after a step whose rows are in the report already.
    fileprivate func after(_ report: WalkReport, _ rows: StoredRows, isEnd: Bool) -> WalkState {
        var state = self
        (state.present, state.areSessions, state.place) = (report, rows.areSessions, rows.place)
        if isEnd { state.end() }
        return state
    }
}

extension WalkReport {
    /// Corrects the counts for a change that a damaged page has prevented.
    fileprivate mutating func noteFailure(of change: WalkChanges) {
        expired -= change.expiredTokens.count + change.expiredSessions.count
        rekeyed -= change.tokens.count
        noteDamage("rows beside a damaged page can be neither deleted nor encrypted again")
    }
}
