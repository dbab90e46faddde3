extension SQLiteConnection {
    /// Findings of SQLite's integrity check; empty for a sound database.
    func structuralDamages() throws(SQLiteError) -> [String] {
        try readingChildrenAhead { () throws(SQLiteError) in
            let check = try SQLiteStatement("PRAGMA integrity_check(20)", on: self)
            var damages: [String] = []
            while try check.step() { damages.append(Self.finding(String(decoding: check.blob(at: 0), as: UTF8.self))) }
            return damages == ["ok"] ? [] : damages
        }
    }
}
