import CSQLite
import System

extension SQLiteConnection {
    /// Runs statements that may take long; they fail when the task is cancelled.
    ///
    /// - Parameters:
    ///   - isolation: The caller's actor, whose thread is the connection's.
    ///   - body: Runs them, on that thread.
    func interruptible<Value>(
        isolation: isolated (any Actor)? = #isolation, _ body: () throws(SQLiteError) -> Value
    ) async -> Result<Value, SQLiteError> {
        // Statements poll for cancellation, also those that begin later. An integrity check polls only at its end, but
        // can be interrupted while it runs.
        unsafe sqlite3_progress_handler(handle, Self.stepsBetweenQuestions, { _ in Task.isCancelled ? 1 : 0 }, nil)
        defer { unsafe sqlite3_progress_handler(handle, 0, nil, nil) }
        // SQLite allows interrupting from another thread while the connection is open (sqlite.org/c3ref/interrupt.html).
        nonisolated(unsafe) let handle = unsafe handle
        return await withTaskCancellationHandler {
            // This closure runs on the caller's actor only because it captures that actor (Swift Evolution proposal 0420).
            // Without this line it would run on Swift's shared pool, and the actor could use the connection at the same time.
            _ = isolation
            do throws(SQLiteError) {
                return .success(try body())
            } catch {
                return .failure(error)
            }
        } onCancel: {
            unsafe sqlite3_interrupt(handle)
        }
    }

    /// Steps of SQLite's virtual machine between two polls: some microseconds.
    private static let stepsBetweenQuestions: Int32 = 1_000
}

extension SQLiteConnection {
    /// Findings of SQLite's integrity check; empty for a sound database.
    ///
    /// Takes time in proportion to the database's size, some seconds for each GB that is in memory. It reads one state,
    /// so the WAL of an open store grows by all that is written meanwhile.
    ///
    /// - Parameters:
    ///   - most: How many findings at most.
    ///   - indexes: Whether to compare the indexes with their tables.
    func structuralDamages(most: Int = 20, indexes: Bool = true) throws(SQLiteError) -> [String] {
        // The check visits pages in an order in which the system does not read ahead, and would wait for the disk at each.
        if fileSize <= SystemMemory.bytes / 2 { _ = readThrough { Task.isCancelled } }
        let check = try SQLiteStatement("PRAGMA \(indexes ? "integrity" : "quick")_check(\(most))", on: self)
        var damages: [String] = []
        while try check.step() { damages.append(Self.finding(String(decoding: check.blob(at: 0), as: UTF8.self))) }
        return damages == ["ok"] ? [] : damages
    }

    /// Reads the database's file from its beginning to its end, so that it is in the page cache; returns false if that
    /// was stopped or failed.
    ///
    /// - Parameter stops: Called before each piece; returns true to stop.
    func readThrough(_ stops: () -> Bool) -> Bool {
        var piece = [UInt8](repeating: 0, count: 64 << 10)
        for offset in stride(from: 0, to: fileSize, by: piece.count) {
            guard !stops(), readFile(at: offset, into: &piece) else { return false }
        }
        return true
    }

    /// A finding of an integrity check, without the heading `*** in database main ***` of some findings.
    private static func finding(_ text: String) -> String {
        text.split(separator: "\n").filter { !$0.hasPrefix("***") }.joined(separator: "; ")
    }

    /// What is wrong with the store's own count of its tokens; nil if it is right.
    ///
    /// Even consistent pages can lack rows: if a lost commit moved rows to a new page, that page is gone and nothing
    /// refers to it. Then the store's count differs from the number of rows, unless just as many rows of lost commits
    /// are there.
    func damagedCount() throws(SQLiteError) -> String? {
        // In one statement, which reads one state. NOT INDEXED counts the rows of the table itself.
        let select = try SQLiteStatement(
            "SELECT tokens, (SELECT count(*) FROM token NOT INDEXED) FROM store", on: self)
        guard try select.step() else { return "the table store is empty" }
        let (counted, found) = (select.integer(at: 0), select.integer(at: 1))
        return counted == found ? nil : "the store has counted \(counted) tokens, but \(found) are there"
    }

    /// Checks that a database does not mix pages from before and after lost commits, as far as its content shows; takes
    /// time in proportion to its size.
    func checkForMixedPages(indexes: Bool = true) throws(SQLiteError) {
        if let damage = try structuralDamages(most: 1, indexes: indexes).first { throw .damaged(damage) }
        if let damage = try damagedCount() { throw .damaged(damage) }
    }
}
