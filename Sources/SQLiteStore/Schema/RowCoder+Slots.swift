internal import TokenStore

/// Rows of the table of tokens, each of which lies in one of the slots of its key; see RowSlots.
extension RowCoder {
    /// The whole token of a row.
    ///
    /// - Parameters:
    ///   - value: The row's value.
    ///   - keyNumber: The key that it was sealed with.
    ///   - key: The row's key.
    ///   - slot: Where the row lies.
    ///   - times: The row's times.
    mutating func token(
        of value: Span<UInt8>, keyNumber: Int, key: [UInt8], slot: Int64, times: RowTimes
    ) throws(SealingError) -> Token {
        guard RowSlots.contains(slot, from: try firstSlot(of: key)) else { throw .misplaced }
        return try token(of: value, keyNumber: keyNumber, key: key, times: times)
    }

    /// The first slot of a row's key.
    mutating func firstSlot(of key: [UInt8]) throws(SealingError) -> Int64 {
        RowSlots.first(of: try hashPrefix(of: key))
    }
}

extension RowKey {
    /// The first slot that the row may lie in.
    var firstSlot: Int64 { RowSlots.first(of: hashPrefix) }
}
