package import TokenStore

/// Copies all rows of one store to another, while both may be in use, and then verifies that they are there.
///
/// Each row is taken only if nothing newer is there, so a copy may be repeated, and goes on where an earlier one has ended.
package struct StoreCopy: Sendable {
    private let source: StoreAccess
    private let target: StoreAccess

    init(from source: StoreAccess, to target: StoreAccess) {
        self.source = source
        self.target = target
    }

    /// What a step is about, for people.
    package enum Stage: String, CaseIterable, Sendable {
        case copying = "Copying"
        case verifying = "Verifying"
        case looking = "Looking for others"
    }

    package typealias Progress = @Sendable (Stage, StoreProgress) -> Void

    /// Rows of a step, and keys of one.
    private static let (step, placesStep) = (500, 5_000)

    /// Copies and verifies.
    ///
    /// - Parameters:
    ///   - removesOthers: Whether to remove rows from the target that the source does not have; only if no server uses the
    ///     target, as it may just have stored them.
    ///   - progress: Called repeatedly.
    package func run(
        removesOthers: Bool, _ progress: @escaping Progress
    ) async throws(StoreAccess.Failure) -> CopySummary {
        let (from, to) = (try await source.perform(ReadTransferFacts()), try await target.perform(ReadTransferFacts()))
        try Self.check(from, to)
        if case .running = target { throw StoreAccess.Failure(Self.usedFolder) }
        let isUsed = !to.servers.isEmpty
        if isUsed && removesOthers { throw StoreAccess.Failure(Self.usedDatabase(to.servers)) }
        var summary = CopySummary(isTargetUsed: isUsed)
        try await copy(.tokens, &summary.tokens, from.tokens, .copying, progress)
        // A session that the target's servers have ended meanwhile would count again: nothing is left of those.
        if !isUsed { try await copy(.sessions, &summary.sessions, from.tokens, .copying, progress) }
        try await copy(.tokens, &summary.tokens, from.tokens, .verifying, progress)
        if !isUsed {
            try await copy(.sessions, &summary.sessions, from.tokens, .verifying, progress)
            try await findOthers(.tokens, &summary.tokens, to.tokens, removes: removesOthers, progress)
            try await findOthers(.sessions, &summary.sessions, to.tokens, removes: removesOthers, progress)
        }
        if case .running = source { summary.isSourceUsed = true }
        if !from.servers.isEmpty { summary.isSourceUsed = true }
        return summary
    }

    /// Closes what was opened in this process.
    package func close() {
        source.close()
        target.close()
    }

    // MARK: - What the stores must have in common

    private static func check(_ from: TransferFacts, _ to: TransferFacts) throws(StoreAccess.Failure) {
        guard from.isSealed == to.isSealed else {
            throw StoreAccess.Failure(
                """
                one of the stores is sealed and the other one is not, and rows are copied as they are; seal or unseal the SQLite \
                store first, with token-cache seal or unseal
                """
            )
        }
        guard from.keyRing == to.keyRing else {
            throw StoreAccess.Failure(differentRings)
        }
        if let number = from.keyNumbers.first(where: { !to.keyNumbers.contains($0) }) {
            throw StoreAccess.Failure(
                "the target's key ring lacks key \(number), which the source's has; give both the same file")
        }
    }

    static let differentRings = """
        the stores have different key rings, and rows are copied as they were sealed: what one ring has sealed, the other does \
        not open. Give both the same ring while the target is empty; or export the tokens of one with token-cache export and \
        import them into the other, which seals them anew, without sessions
        """

    private static let usedFolder = """
        a server uses the target, and tokens that it has removed would come back; stop it first
        """

    private static func usedDatabase(_ servers: [String]) -> String {
        """
        the target is used by \(servers.sorted().joined(separator: ", ")), and what is only there may have just been stored; \
        stop these servers first, or copy without removing
        """
    }

    // MARK: - Passes

    /// Takes a table's rows over, or verifies that they are there.
    private func copy(
        _ table: TransferTable, _ counts: inout CopySummary.Counts, _ total: Int, _ stage: Stage,
        _ progress: @escaping Progress
    ) async throws(StoreAccess.Failure) {
        var (cursor, seen): (StoreCursor?, Int) = (nil, 0)
        var pass = CopySummary.Counts()
        repeat {
            let page = try await source.perform(ReadRows(of: table, after: cursor, limit: Self.step))
            seen += page.rows.count + page.unreadable
            pass.unreadable += page.unreadable
            try await take(page.rows, into: table, &pass)
            if table == .tokens { progress(stage, StoreProgress(done: min(seen, total), total: total)) }
            cursor = page.next
        } while cursor != nil
        switch stage {
        case .verifying: counts.noteVerification(pass)
        case .copying, .looking: counts = pass
        }
    }

    private func take(
        _ rows: [TransferRow], into table: TransferTable, _ counts: inout CopySummary.Counts
    ) async throws(StoreAccess.Failure) {
        guard !rows.isEmpty else { return }
        let before = try await target.perform(CompareRows(rows.map(\.stamp), in: table)).standings
        guard before.count == rows.count else { throw StoreAccess.Failure("the target's answer cannot be read") }
        var wanted: [TransferRow] = []
        for (row, standing) in zip(rows, before) {
            if standing == .wanted { wanted.append(row) } else { counts.note(standing) }
        }
        guard !wanted.isEmpty else { return }
        for standing in try await target.perform(TakeRows(wanted, into: table)).standings {
            if standing == .same { counts.copied += 1 } else { counts.note(standing) }
        }
    }

    /// Looks for rows of the target that the source does not have.
    private func findOthers(
        _ table: TransferTable, _ counts: inout CopySummary.Counts, _ total: Int, removes: Bool,
        _ progress: @escaping Progress
    ) async throws(StoreAccess.Failure) {
        var (cursor, seen): (StoreCursor?, Int) = (nil, 0)
        repeat {
            let page = try await target.perform(ReadPlaces(in: table, after: cursor, limit: Self.placesStep))
            let missing = Set(try await source.perform(FindMissingRows(page.places.map(\.key), in: table)).keys)
            let others = page.places.filter { missing.contains($0.key) }
            if removes && !others.isEmpty {
                counts.removed += try await target.perform(RemoveRows(others, from: table)).removed
            } else {
                counts.others += others.count
            }
            seen += page.places.count
            if table == .tokens { progress(.looking, StoreProgress(done: min(seen, total), total: total)) }
            cursor = page.next
        } while cursor != nil
    }
}

/// What a copy has done.
package struct CopySummary: Codable, Sendable {
    package var tokens = Counts()
    package var sessions = Counts()
    /// Whether servers use the target; then sessions are not copied, and others are not looked for.
    package var isTargetUsed: Bool
    /// Whether servers use the source, and may have changed it meanwhile.
    package var isSourceUsed = false

    init(isTargetUsed: Bool) {
        self.isTargetUsed = isTargetUsed
    }

    /// Whether everything that opens is in the target.
    package var isComplete: Bool {
        [tokens, sessions].allSatisfy { $0.unreadable == 0 && $0.different == 0 && $0.lost == 0 }
    }

    /// Rows of one table.
    package struct Counts: Codable, Sendable {
        package var copied = 0
        /// Were there already.
        package var same = 0
        /// Stayed, as something newer was there.
        package var newer = 0
        /// Were left out, as the target would delete them at once.
        package var expired = 0
        /// Do not open, and were left out.
        package var unreadable = 0
        /// Something else is there that is as old.
        package var different = 0
        /// Could not be stored, although nothing newer was there.
        package var lost = 0
        /// Were changed in the source while they were copied, and were taken over by the verification.
        package var changed = 0
        /// Are in the target only.
        package var others = 0
        /// Were in the target only, and were removed.
        package var removed = 0

        mutating func note(_ standing: TransferStanding) {
            switch standing {
            case .same: same += 1
            case .newer: newer += 1
            case .expired: expired += 1
            case .different: different += 1
            case .wanted: lost += 1
            }
        }

        /// Takes over what a second pass has found.
        mutating func noteVerification(_ pass: Counts) {
            changed = pass.copied
            (unreadable, different, lost) = (pass.unreadable, pass.different, pass.lost)
        }
    }
}
