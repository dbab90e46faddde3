/// A row that is copied to another store, with its times and version; opened, because the other store has keys of its
/// own.
package enum CopiedRow: Sendable {
    case token(Token, RowTimes, TokenVersion)
    case session(OpenedSession, number: Int64)
}

/// Rows in the clear, which version 1.0 stored with `sealing.enabled: off`, and which are only read to be copied to a sealed store.
///
/// The key of a token's row is its id, and that of a session's row is the session's key.
package enum ClearRow {
    package static func token(key: [UInt8], value: [UInt8]) throws(SealingError) -> Token {
        guard key.count <= TokenSealer.longestID else { throw .malformed }
        return Token(id: key, info: value)
    }

    package static func session(_ row: SessionRow) throws(SealingError) -> OpenedSession {
        guard row.user.count <= TokenSealer.longestID else { throw .malformed }
        return try row.opened(user: row.user, row.key)
    }
}

extension RowCoder {
    /// Seals rows with this store's keys.
    package mutating func rows(
        of copied: [CopiedRow]
    ) throws(StoreError) -> (tokens: [(row: Row, version: TokenVersion)], sessions: [SessionRow]) {
        var (tokens, sessions) = ([(row: Row, version: TokenVersion)](), [SessionRow]())
        do {
            for row in copied {
                switch row {
                case .token(let token, let times, let version):
                    tokens.append((try self.row(of: token, times), version))
                case .session(let opened, let number):
                    sessions.append(try self.row(of: opened.session, opened.key, number: number))
                }
            }
        } catch {
            throw .sealing(error)
        }
        return (tokens, sessions)
    }
}

/// Reads all rows of a store, each once, as of one moment.
///
/// Used by one thread, which it blocks.
package protocol CopySource: AnyObject {
    /// How many rows the store says it has.
    var count: CopyCount { get }
    /// The moment whose rows are read, in seconds since 1970; nil for a store that nobody else can change meanwhile.
    var moment: Int64? { get }
    /// A number that no version in the store has ever exceeded, those of removed tokens included.
    var versionLimit: Int64 { get }
    /// When the store last found its clock right, in seconds since 1970; nil if that is not known.
    var clockLook: Int64? { get }
    /// Rows that were left out because they cannot be read, or do not open: how many, by reason.
    var unreadable: [String: Int] { get }
    /// Whether it is a backup, whose sessions are left out: some may have been ended since.
    var isBackup: Bool { get }

    /// Reads the next rows, in any order; returns none at the end.
    func next() throws(StoreError) -> [CopiedRow]
}

extension CopySource {
    package var isBackup: Bool { false }
}

/// Fills a new store.
///
/// Until `finish` there is no store, or one that no server opens. Whether another copy continues it is up to the store.
///
/// Used by one thread, which it blocks.
package protocol CopyTarget: AnyObject {
    /// Seals rows with this store's keys, and adds them.
    func add(_ rows: [CopiedRow]) throws(StoreError)

    /// Moves the rows to their final places, and returns a source that reads them there.
    func reread() throws(StoreError) -> any CopySource

    /// Makes the store durable and usable.
    ///
    /// - Parameters:
    ///   - versionLimit: All later versions are larger.
    ///   - clockLook: The source's.
    func finish(versionLimit: Int64, clockLook: Int64?) throws(StoreError)

    /// Discards the added rows, unless another copy can continue this one.
    func abandon()
}

package struct CopyCount: Codable, Hashable, Sendable {
    package var tokens = 0
    package var sessions = 0

    package init(tokens: Int = 0, sessions: Int = 0) {
        (self.tokens, self.sessions) = (tokens, sessions)
    }

    package var total: Int { tokens + sessions }
}

/// The result of a copy.
package struct CopySummary: Codable, Sendable {
    package var copied = CopyCount()
    /// The source's own count, if it differs from the rows that were found.
    package var wrongCount: CopyCount?
    /// Rows that were left out: how many, by reason.
    package var unreadable: [String: Int] = [:]
    /// Users that were left out because they were erased after the source was written, as when it is an old backup.
    package var erasedUsers = 0
    /// Sessions that were left out, see `CopySource.isBackup`, and those of erased users.
    package var endedSessions = 0
    /// The moment whose rows were copied, in seconds since 1970; nil for a store that was closed.
    package var moment: Int64?

    package var isComplete: Bool { wrongCount == nil && unreadable.isEmpty }
}

/// Copies all rows of a store to an empty one, and compares the rows that were read with those that were written.
package struct StoreCopy {
    package enum Stage: String, CaseIterable, Sendable {
        case copying = "Copying"
        case ordering = "Ordering"
        case verifying = "Verifying"
    }

    private let source: any CopySource
    private let target: any CopyTarget
    private let erasures: [Erasures]
    private let progress: (Stage, StoreProgress) -> Void

    /// - Parameter erasures: Users that must not come back, see `ErasuresFile`.
    package init(
        from source: any CopySource, to target: any CopyTarget, without erasures: [Erasures] = [],
        _ progress: @escaping (Stage, StoreProgress) -> Void
    ) {
        (self.source, self.target, self.erasures, self.progress) = (source, target, erasures, progress)
    }

    /// - Parameter skipsUnreadable: Whether to leave out rows that cannot be read or do not open; otherwise such a row
    ///   makes the copy fail.
    package func run(skipsUnreadable: Bool) throws(StoreError) -> CopySummary {
        do {
            return try copy(skipsUnreadable: skipsUnreadable)
        } catch {
            target.abandon()
            throw error
        }
    }

    private func copy(skipsUnreadable: Bool) throws(StoreError) -> CopySummary {
        var read = RowDigest()
        var written = read
        var omitted = CopyCount()
        // Later tokens of an erased user must not count as erased in a later restore.
        var versionLimit = erasures.reduce(source.versionLimit) { max($0, $1.last?.rawValue ?? 0) }
        try forEachBatch(of: source, .copying) { (rows) throws(StoreError) in
            let kept = rows.filter { isKept($0, &omitted) }
            for row in kept { versionLimit = max(versionLimit, read.add(row)) }
            try target.add(kept)
        }
        var summary = CopySummary(copied: read.count, unreadable: source.unreadable, moment: source.moment)
        summary.erasedUsers = erasures.reduce(0) { $0 + $1.foundCount }
        summary.endedSessions = omitted.sessions
        let unreadable = summary.unreadable.values.reduce(0, +)
        if !skipsUnreadable, let reason = summary.unreadable.keys.first {
            throw .refused(
                """
                the source has \(unreadable) \(unreadable == 1 ? "row" : "rows") that cannot be read (\(reason)), so the \
                copy is not complete: append the lines of missing keys from an earlier copy of the key ring, or leave these rows out \
                with --skip-unreadable
                """)
        }
        if read.count.total + omitted.total + unreadable != source.count.total { summary.wrongCount = source.count }
        progress(.ordering, StoreProgress(done: 0, total: read.count.total))
        let reread = try target.reread()
        try forEachBatch(of: reread, .verifying) { (rows) throws(StoreError) in
            for row in rows { _ = written.add(row) }
        }
        guard written == read else {
            throw .refused(
                """
                what the target holds is not what was read from the source (\(written.count.tokens) of \(read.count.tokens) tokens, \
                \(written.count.sessions) of \(read.count.sessions) sessions); the source was changed after an interrupted copy that \
                this one continued, or a disk or the memory of this machine is failing. Copy into an empty folder or new tables
                """)
        }
        try target.finish(versionLimit: versionLimit, clockLook: source.clockLook)
        return summary
    }

    private func isKept(_ row: CopiedRow, _ omitted: inout CopyCount) -> Bool {
        switch row {
        case .token(let token, _, let version):
            guard erasures.find(token.id, writtenAs: version) else { return true }
            omitted.tokens += 1
        case .session(let opened, let number):
            let isErased = erasures.find(opened.session.user, writtenAs: TokenVersion(rawValue: number))
            guard isErased || source.isBackup else { return true }
            omitted.sessions += 1
        }
        return false
    }

    private func forEachBatch(
        of source: any CopySource, _ stage: Stage, _ body: ([CopiedRow]) throws(StoreError) -> Void
    ) throws(StoreError) {
        let total = source.count.total
        var done = 0
        while true {
            let rows = try source.next()
            guard !rows.isEmpty else { break }
            try body(rows)
            done += rows.count
            progress(stage, StoreProgress(done: min(done, total), total: total))
        }
    }
}

/// Represents a set of rows, regardless of their order, by their number and the sum of their hashes.
private struct RowDigest: Equatable {
    private(set) var count = CopyCount()
    private var sum = 0

    /// - Returns: The row's version.
    mutating func add(_ row: CopiedRow) -> Int64 {
        // Its hashes differ between processes, so nobody can have prepared rows with equal hashes.
        var hasher = Hasher()
        let version: Int64
        switch row {
        case .token(let token, let times, let number):
            version = number.rawValue
            count.tokens += 1
            for bytes in [token.id, token.info] { Self.add(bytes, to: &hasher) }
            hasher.combine(times)
        case .session(let opened, let number):
            version = number
            count.sessions += 1
            hasher.combine(opened.session)
            hasher.combine(opened.key.bytes)
        }
        hasher.combine(version)
        sum &+= hasher.finalize()
        return version
    }

    /// Adds bytes in words: an array adds each byte by itself, which takes several times as long.
    private static func add(_ bytes: [UInt8], to hasher: inout Hasher) {
        hasher.combine(bytes.count)
        for start in stride(from: 0, to: bytes.count, by: 8) {
            var word: UInt64 = 0
            for index in start..<min(start + 8, bytes.count) { word = word << 8 | UInt64(bytes[index]) }
            hasher.combine(word)
        }
    }
}
