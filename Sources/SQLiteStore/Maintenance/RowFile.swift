internal import CSQLite
internal import Cryptography
internal import Glibc
internal import System
internal import TokenStore

/// A file without a name that keeps rows in the order in which they were added; see `RowSorter`.
///
/// Because it has no name, nothing is left of it after a crash.
final class RowFile {
    private let file: FileDescriptor
    private let isSecret: Bool
    private let digest: SHA256Digest
    /// What is not yet written; later what is read and not yet decoded, from `position` on.
    private var buffer: [UInt8] = []
    private var position = 0
    private var isReading = false
    /// Bytes that were written.
    private var size = 0
    /// Bytes that were read from the file.
    private var readBytes = 0

    /// Bytes that are written at once.
    private static let written = 32 << 10
    /// Bytes that are read at once.
    private static let read = 1 << 20
    /// Words of a row before its key and value, each of 8 bytes; see `append`.
    private static let words = 7
    /// Bytes of a row after its key and value.
    private static let checksumBytes = 8
    /// For a row without an expiration or without a version.
    private static let none = Int64.min

    init(at path: String, isSecret: Bool) throws(SQLiteError) {
        self.isSecret = isSecret
        do throws(CryptographyError) {
            digest = try SHA256Digest()
        } catch {
            throw SQLiteError(code: SQLITE_ERROR, message: "\(error)", sql: Self.name)
        }
        do throws(SystemError) {
            _ = unsafe unlink(path)
            file = try FileDescriptor(opening: path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600)
        } catch {
            throw Self.fault(error)
        }
        guard unsafe unlink(path) == 0 else { throw .system("unlink", of: Self.name) }
    }

    /// Adds a row.
    ///
    /// The observer of writes has no use for the ids of rows that are converted, so they are not kept.
    func append(_ row: Row) throws(SQLiteError) {
        let start = buffer.count
        append(Int64(bitPattern: row.key.hashPrefix))
        append(row.times.writtenAt)
        append(row.times.expiresAt ?? Self.none)
        append(row.version?.rawValue ?? Self.none)
        append(Int64(row.keyNumber))
        append(Int64(row.key.bytes.count))
        append(Int64(row.value.count))
        buffer += row.key.bytes
        buffer += row.value
        buffer += try checksum(of: start..<buffer.count)
        if buffer.count >= Self.written { try flush() }
    }

    /// Removes the next row; nil after the last one.
    ///
    /// No row can be added afterwards.
    func next(index: ObjectIdentifier) throws(SQLiteError) -> Row? {
        if !isReading {
            try flush()
            isReading = true
        }
        guard try hold(Self.words * 8) else {
            guard position == buffer.count, readBytes == size else { throw Self.damage }
            return nil
        }
        let hashPrefix = UInt64(bitPattern: word(0))
        let (writtenAt, expiresAt, version, keyNumber) = (word(1), word(2), word(3), word(4))
        let (keyCount, valueCount) = (word(5), word(6))
        // A disk that returns something else than was written must neither trap nor take memory.
        guard (0...Int64(size)).contains(keyCount), (0...Int64(size)).contains(valueCount) else { throw Self.damage }
        let keyOffset = Self.words * 8
        let valueOffset = keyOffset + Int(keyCount)
        let end = valueOffset + Int(valueCount)
        guard try hold(end + Self.checksumBytes) else { throw Self.damage }
        let start = position
        position += end + Self.checksumBytes
        guard try checksum(of: start..<(start + end)) == buffer[(start + end)..<position] else { throw Self.damage }
        var row = Row(
            key: RowKey(bytes: Array(buffer[(start + keyOffset)..<(start + valueOffset)]), hashPrefix: hashPrefix),
            value: Array(buffer[(start + valueOffset)..<(start + end)]), keyNumber: Int(keyNumber),
            times: RowTimes(writtenAt: writtenAt, expiresAt: expiresAt == Self.none ? nil : expiresAt),
            id: [], index: index)
        if version != Self.none { row.version = TokenVersion(rawValue: version) }
        return row
    }

    /// Overwrites the rows, if they are secret.
    ///
    /// The disk gets the room back when this object is gone.
    func discard() {
        if isSecret { PrivateFile.overwrite(file.number) }
    }

    // MARK: - Bytes

    private func append(_ word: Int64) {
        for shift in stride(from: 0, to: 64, by: 8) { buffer.append(UInt8(truncatingIfNeeded: word >> Int64(shift))) }
    }

    /// A word of the row at `position`.
    private func word(_ number: Int) -> Int64 {
        let start = position + number * 8
        return buffer[start..<(start + 8)].reversed().reduce(0) { $0 << 8 | Int64($1) }
    }

    /// Of bytes in the buffer; finds what a disk has lost or mixed up, which is not found later in a store in the clear.
    private func checksum(of range: Range<Int>) throws(SQLiteError) -> ArraySlice<UInt8> {
        let bytes = buffer
        var checksum: [UInt8] = []
        do throws(CryptographyError) {
            try digest.digest(bytes.span.extracting(range), into: &checksum)
        } catch {
            throw SQLiteError(code: SQLITE_ERROR, message: "\(error)", sql: Self.name)
        }
        return checksum.prefix(Self.checksumBytes)
    }

    /// Reads until the buffer has some more bytes; false if the file ends before.
    private func hold(_ count: Int) throws(SQLiteError) -> Bool {
        guard buffer.count - position < count else { return true }
        buffer.removeFirst(position)
        position = 0
        do throws(SystemError) {
            let wanted = min(size - readBytes, max(Self.read, count))
            let part = try BlockingIO.read(from: file.number, at: readBytes, count: wanted)
            readBytes += part.count
            buffer += part
        } catch {
            throw Self.fault(error)
        }
        return buffer.count >= count
    }

    private func flush() throws(SQLiteError) {
        do throws(SystemError) {
            try BlockingIO.write(buffer[...], to: file.number, at: size)
        } catch {
            throw Self.fault(error)
        }
        size += buffer.count
        buffer.removeAll(keepingCapacity: true)
    }

    // MARK: - Errors

    /// In errors, as the file has no name.
    private static let name = "rows to be sorted"

    private static let damage = SQLiteError.system("pread", of: name, code: EIO)

    private static func fault(_ error: SystemError) -> SQLiteError {
        .system(error.call, of: name, code: error.code)
    }
}
