internal import CSQLite
internal import Cryptography
internal import Glibc
internal import System
internal import TokenStore

/// A file without a name that keeps rows in the order in which they were added; see `RowSorter`.
///
/// After a crash no file is left, but its blocks are not overwritten.
final class RowFile {
    private let file: FileDescriptor
    private let isSecret: Bool
    private let digest: SHA256Digest
    /// Distinguishes this file's rows from those of other files; see `place`.
    private let mark = UInt64.random(in: 0...(.max))
    /// Bytes that are still to be written; while reading, bytes that are still to be decoded, from `position` on.
    private var buffer: [UInt8] = []
    private var position = 0
    private var isReading = false
    /// Bytes that were written.
    private var fileSize = 0
    /// Bytes that were read from the file.
    private var readOffset = 0
    /// The most bytes that a row's key and value have together.
    private var longestContent = 0

    /// The size of the buffer in which bytes are gathered before they are written.
    private static let writeSize = 64 << 10
    /// How many bytes are read at a time; more if a row is longer.
    private static let readSize = 1 << 20
    /// Words of a row before its key and value, each of 8 bytes; see `append`.
    private static let headWords = 8
    /// Bytes of a row after its key and value.
    private static let checksumSize = 8
    /// Written in place of a missing expiration or version.
    private static let none = Int64.min

    /// - Parameter path: Where the file is created; nothing may exist there.
    init(at path: String, isSecret: Bool) throws(SQLiteError) {
        self.isSecret = isSecret
        do throws(CryptographyError) {
            digest = try SHA256Digest()
        } catch {
            throw Self.fault(error)
        }
        do throws(SystemError) {
            file = try FileDescriptor(opening: path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600)
        } catch {
            throw Self.fault(error)
        }
        do throws(StoreError) {
            try PrivateFile.remove(path)
        } catch {
            throw Self.fault(error)
        }
    }

    deinit {
        if isSecret { PrivateFile.overwrite(file.number) }
    }

    /// Adds a row.
    ///
    /// Its id is not kept, because only observers of writes need it, and a conversion has none.
    func append(_ row: Row) throws(SQLiteError) {
        let start = buffer.count
        append(place(at: fileSize + start))
        append(Int64(bitPattern: row.key.hashPrefix))
        append(row.times.writtenAt)
        append(row.times.expiresAt ?? Self.none)
        append(row.version?.rawValue ?? Self.none)
        append(Int64(row.keyNumber))
        append(Int64(row.key.bytes.count))
        append(Int64(row.value.count))
        buffer += row.key.bytes
        buffer += row.value
        longestContent = max(longestContent, row.key.bytes.count + row.value.count)
        buffer += try checksum(of: start..<buffer.count)
        if buffer.count >= Self.writeSize { try flush() }
    }

    /// Removes the next row; nil after the last one.
    ///
    /// No row can be added afterwards.
    func next(index: ObjectIdentifier) throws(SQLiteError) -> Row? {
        if !isReading {
            try flush()
            isReading = true
        }
        guard try fill(toAtLeast: Self.headWords * 8) else {
            guard position == buffer.count, readOffset == fileSize else { throw Self.damage }
            return nil
        }
        guard word(0) == place(at: readOffset - (buffer.count - position)) else { throw Self.damage }
        let hashPrefix = UInt64(bitPattern: word(1))
        let (writtenAt, expiresAt, version, keyNumber) = (word(2), word(3), word(4), word(5))
        let (keyCount, valueCount) = (word(6), word(7))
        // Wrong data from the disk must not cause a trap or a huge allocation.
        let possible = 0...Int64(longestContent)
        guard possible.contains(keyCount), possible.contains(valueCount) else { throw Self.damage }
        let keyOffset = Self.headWords * 8
        let valueOffset = keyOffset + Int(keyCount)
        let end = valueOffset + Int(valueCount)
        guard try fill(toAtLeast: end + Self.checksumSize) else { throw Self.damage }
        let start = position
        position += end + Self.checksumSize
        guard try checksum(of: start..<(start + end)) == buffer[(start + end)..<position] else { throw Self.damage }
        var row = Row(
            key: RowKey(bytes: Array(buffer[(start + keyOffset)..<(start + valueOffset)]), hashPrefix: hashPrefix),
            value: Array(buffer[(start + valueOffset)..<(start + end)]), keyNumber: Int(keyNumber),
            times: RowTimes(writtenAt: writtenAt, expiresAt: expiresAt == Self.none ? nil : expiresAt),
            id: [], index: index)
        if version != Self.none { row.version = TokenVersion(rawValue: version) }
        return row
    }

    // MARK: - Bytes

    /// The first word of a row, which says which file the row belongs to, and where in that file.
    private func place(at offset: Int) -> Int64 {
        Int64(bitPattern: mark ^ UInt64(offset))
    }

    private func append(_ word: Int64) {
        for shift in stride(from: 0, to: 64, by: 8) { buffer.append(UInt8(truncatingIfNeeded: word >> Int64(shift))) }
    }

    /// A word of the row at `position`.
    private func word(_ number: Int) -> Int64 {
        let start = position + number * 8
        return buffer[start..<(start + 8)].reversed().reduce(0) { $0 << 8 | Int64($1) }
    }

    /// The checksum of some bytes in the buffer.
    ///
    /// It reveals what the disk has lost or mixed up. In a store in the clear, nothing else would.
    private func checksum(of range: Range<Int>) throws(SQLiteError) -> ArraySlice<UInt8> {
        let bytes = buffer
        var checksum: [UInt8] = []
        do throws(CryptographyError) {
            try digest.digest(bytes.span.extracting(range), into: &checksum)
        } catch {
            throw Self.fault(error)
        }
        return checksum.prefix(Self.checksumSize)
    }

    /// Reads until the buffer has some bytes behind `position`; false if the file ends before.
    private func fill(toAtLeast count: Int) throws(SQLiteError) -> Bool {
        guard buffer.count - position < count else { return true }
        buffer.removeFirst(position)
        position = 0
        do throws(SystemError) {
            let wanted = min(fileSize - readOffset, max(Self.readSize, count))
            let part = try BlockingIO.read(from: file.number, at: readOffset, count: wanted)
            readOffset += part.count
            buffer += part
        } catch {
            throw Self.fault(error)
        }
        return buffer.count >= count
    }

    private func flush() throws(SQLiteError) {
        do throws(SystemError) {
            try BlockingIO.write(buffer[...], to: file.number, at: fileSize)
        } catch {
            throw Self.fault(error)
        }
        fileSize += buffer.count
        // Otherwise a few long rows could leave every file with a large buffer.
        if buffer.capacity > 2 * Self.writeSize { buffer = [] } else { buffer.removeAll(keepingCapacity: true) }
    }

    // MARK: - Errors

    /// The name of the file in error messages: it has no path any more.
    private static let name = "rows to be sorted"

    private static let damage = SQLiteError(
        code: SQLITE_IOERR, message: "a temporary file returned something else than was written to it", sql: name)

    private static func fault(_ error: SystemError) -> SQLiteError {
        .system(error.call, of: name, code: error.code)
    }

    private static func fault(_ error: some Error) -> SQLiteError {
        SQLiteError(code: SQLITE_ERROR, message: "\(error)", sql: name)
    }
}
