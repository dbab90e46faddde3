extension SQLiteConnection {
    /// Findings of SQLite's integrity check, and tokens that are there twice; empty for a sound database.
    func structuralDamages() throws(SQLiteError) -> [String] {
        let check = try SQLiteStatement("PRAGMA integrity_check(20)", on: self)
        var damages: [String] = []
        while try check.step() { damages.append(Self.finding(String(decoding: check.blob(at: 0), as: UTF8.self))) }
        if damages == ["ok"] { damages = [] }
        let doubles = try integer(
            """
            SELECT count(*) FROM token AS one JOIN token AS other
            ON other.slot BETWEEN one.slot + 1 AND one.slot + \(RowSlots.count - 1) AND other.key = one.key
            """
        )
        if doubles > 0 { damages.append("\(doubles) \(doubles == 1 ? "token is" : "tokens are") there twice") }
        return damages
    }
}
