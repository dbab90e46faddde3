/// The role of a name in a query or a form for one of the contract's parameters.
package enum ParameterRole: Hashable, Sendable {
    /// The parameter's own name.
    case parameter
    /// An element of an array of that name, such as `unique_id[]` or `unique_id[a]b`: in PHP the array replaces a plain value
    /// that came before it.
    case element
    case other

    /// - Parameters:
    ///   - name: A decoded name.
    ///   - parameter: The parameter's name.
    package init(of name: [UInt8], for parameter: StaticString) {
        let bytes = name.span
        let count = parameter.utf8CodeUnitCount
        guard bytes.count >= count, bytes.equals(ByteRange(0, count), parameter) else {
            self = .other
            return
        }
        guard bytes.count > count else {
            self = .parameter
            return
        }
        // PHP cuts a name off at a NUL, which makes it another name. A bracket that is not closed opens no array.
        let isElement =
            bytes[count] == UInt8(ascii: "[")
            && bytes.firstIndex(of: UInt8(ascii: "]"), in: count..<bytes.count) != nil
            && bytes.firstIndex(of: 0, in: count..<bytes.count) == nil
        self = isElement ? .element : .other
    }
}
