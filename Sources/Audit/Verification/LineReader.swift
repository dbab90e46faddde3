internal import Glibc
internal import System

/// Reads a file line by line.
struct LineReader: ~Copyable {
    enum Line {
        /// Without its newline.
        case whole(ArraySlice<UInt8>)
        /// The file ends in it.
        case cut
        /// Longer than any line of a log; the reader ends there.
        case long
    }

    private let path: String
    private let file: FileDescriptor
    private var buffer: [UInt8] = []
    /// Where the next line begins in the buffer.
    private var position = 0
    private var isAtEnd = false
    private var isAtBeginning = true

    private static let chunk = 1 << 18
    /// The first bytes of compressed files, which begin no line, and the program that unpacks them.
    private static let compressions: [(bytes: [UInt8], program: String)] = [
        ([0x1f, 0x8b], "gzip"), ([0xfd, 0x37, 0x7a, 0x58], "xz"), ([0x28, 0xb5, 0x2f, 0xfd], "zstd"),
        ([0x42, 0x5a, 0x68], "bzip2"),
    ]

    init(_ path: String) throws(AuditError) {
        self.path = path
        do throws(SystemError) {
            file = try FileDescriptor(opening: path, O_RDONLY)
        } catch {
            throw .file(path: path, error)
        }
    }

    /// Nil at the end.
    mutating func next() throws(AuditError) -> Line? {
        while true {
            if let end = buffer[position...].firstIndex(of: UInt8(ascii: "\n")) {
                defer { position = end + 1 }
                return end - position > AuditLine.lengthLimit ? .long : .whole(buffer[position..<end])
            }
            let rest = buffer.count - position
            if rest > AuditLine.lengthLimit { return .long }
            if isAtEnd {
                position = buffer.count
                return rest > 0 ? .cut : nil
            }
            buffer.removeFirst(position)
            position = 0
            do throws(SystemError) {
                let more = try BlockingIO.read(from: file.number, limit: Self.chunk)
                isAtEnd = more.isEmpty
                buffer += more
            } catch {
                throw .file(path: path, error)
            }
            // logrotate compresses earlier files.
            if isAtBeginning, let found = Self.compressions.first(where: { buffer.starts(with: $0.bytes) }) {
                throw .compressed(path: path, program: found.program)
            }
            isAtBeginning = buffer.isEmpty
        }
    }
}
