internal import TokenStore

/// A row of the table of tokens, as a statement that selects `columns` returns it.
struct StoredRow {
    let slot: Int64
    let key: [UInt8]
    /// The key that sealed the value; 0 in the clear.
    let keyNumber: Int
    let times: RowTimes
    let version: TokenVersion

    /// For a statement's text: the columns in the order of `Column`.
    static let columns = "slot, key, key_number, written_at, expires_at, version, value"

    /// Where a statement's columns are.
    enum Column {
        static let slot: Int32 = 0
        static let key: Int32 = 1
        static let keyNumber: Int32 = 2
        static let writtenAt: Int32 = 3
        static let expiresAt: Int32 = 4
        static let version: Int32 = 5
        static let value: Int32 = 6
    }

    /// Reads all but the value of the statement's current row.
    init(_ select: SQLiteStatement) {
        slot = Int64(select.integer(at: Column.slot))
        key = select.blob(at: Column.key)
        keyNumber = select.integer(at: Column.keyNumber)
        times = RowTimes(
            writtenAt: Int64(select.integer(at: Column.writtenAt)),
            expiresAt: select.optionalInteger(at: Column.expiresAt)
        )
        version = TokenVersion(rawValue: Int64(select.integer(at: Column.version)))
    }

    /// Opens the token of a value.
    func token(of value: Span<UInt8>, _ coder: inout RowCoder) throws(SealingError) -> Token {
        try coder.token(of: value, keyNumber: keyNumber, key: key, slot: slot, times: times)
    }
}
