extension [UInt8] {
    /// Appends bytes that `body` writes; appends none if it returns false.
    ///
    /// - Parameters:
    ///   - added: How many, at least 0.
    ///   - body: Writes the bytes to the given place.
    @inlinable
    public mutating func append(count added: Int, writing body: (UnsafeMutablePointer<UInt8>) -> Bool) -> Bool {
        var isWritten = false
        // `body` needs a valid pointer even for no bytes.
        append(addingCapacity: Swift.max(added, 1)) { output in
            unsafe output.withUnsafeMutableBufferPointer { room, count in
                precondition(room.count >= added, "there is as much room as was asked for")
                isWritten = unsafe room.baseAddress.map { unsafe body($0) } ?? false
                count = isWritten ? added : 0
            }
        }
        return isWritten
    }

    /// Appends bytes that are lent.
    @inlinable
    public mutating func append(span: Span<UInt8>) {
        unsafe span.withUnsafeBufferPointer { unsafe append(contentsOf: $0) }
    }
}
