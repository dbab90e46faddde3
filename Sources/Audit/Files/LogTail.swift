/// Reads the end of a log's file, however long the file is.
struct LogTail {
    private let file: AuditFile

    init(_ file: AuditFile) {
        self.file = file
    }

    /// How much is read at once.
    private static let window = 1 << 20
    private static let newline = UInt8(ascii: "\n")

    /// Refuses a file that is no audit log, or that of another chain, before anything in it is changed.
    func checkOrigin(chain: String) throws(AuditError) {
        let start = try file.read(at: 0, count: AuditLine.lengthLimit + 1)
        guard !start.isEmpty else { return }
        guard let end = start.firstIndex(of: Self.newline) else {
            // The first line of all can have been torn as well.
            let beginning = Array(#"{"sequence":"#.utf8)
            guard start.count <= AuditLine.lengthLimit, start.prefix(beginning.count).elementsEqual(beginning) else {
                throw .foreign(path: file.path)
            }
            return
        }
        guard let line = AuditLine(start[..<end]) else { throw .foreign(path: file.path) }
        // A file that was emptied while the server wrote to it does not begin with the chain's name.
        guard line.chain == nil || line.chain == chain else { throw .ofAnotherChain(path: file.path) }
    }

    /// Cuts off what follows the last newline.
    ///
    /// - Returns: How many bytes.
    func cutHalfLine() throws(AuditError) -> Int {
        let size = file.size
        let end = try lastNewline(before: size).map { $0 + 1 } ?? 0
        if end < size { try file.truncate(to: end) }
        return size - end
    }

    /// The last line of a file that ends with a newline; nil if it cannot be read.
    func lastLine() throws(AuditError) -> AuditLine? {
        let size = file.size
        let start = try lastNewline(before: size - 1).map { $0 + 1 } ?? 0
        guard size - 1 - start <= AuditLine.lengthLimit else { return nil }
        return AuditLine(try file.read(at: start, count: size - 1 - start)[...])
    }

    /// Whole lines from the end of the file, among them those that follow a line; from the file's start if need be.
    func bytes(after sequence: UInt64) throws(AuditError) -> ArraySlice<UInt8> {
        let size = file.size
        var count = Self.window
        while true {
            let start = max(0, size - count)
            let bytes = try file.read(at: start, count: size - start)
            // The first line is a part of one, unless the file begins there.
            let whole = start == 0 ? bytes[...] : bytes.drop { $0 != Self.newline }.dropFirst()
            if start == 0 { return whole }
            if let first = AuditLine(whole.prefix { $0 != Self.newline }), first.sequence <= sequence + 1 {
                return whole
            }
            count *= 2
        }
    }

    private func lastNewline(before offset: Int) throws(AuditError) -> Int? {
        var end = offset
        while end > 0 {
            let start = max(0, end - Self.window)
            if let index = try file.read(at: start, count: end - start).lastIndex(of: Self.newline) {
                return start + index
            }
            end = start
        }
        return nil
    }
}
