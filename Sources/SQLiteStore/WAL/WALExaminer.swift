import Glibc
import System
import TokenStore

/// What a WAL tells about when it was written, to compare it with its database.
struct WALState {
    /// The first salt of its round; nil without a sound header.
    var salt: UInt32?
    /// The number of frames up to the last commit.
    var frames: UInt32 = 0
    /// How many checkpoints were complete when its round began; nil if another program or version began it.
    var complete: UInt32?
    /// Whether frames of a later round follow the commits: it was overwritten while it was copied.
    var isOvertaken = false
    /// The mark that was written at its end when it was emptied.
    var end: CheckpointMark?

    /// Whether the database and this WAL together have everything that was committed before they were copied, and no commit in
    /// part.
    ///
    /// Files that were not copied, or both at one moment, always fit.
    ///
    /// - Parameters:
    ///   - mark: The database's; nil if it has none, as after a change by another program.
    ///   - complete: The number of complete checkpoints in its first page.
    func fits(_ mark: CheckpointMark?, complete: UInt32) -> Bool {
        let includes = CheckpointMark.includes
        // It was emptied while it was copied: the copy has the mark, and frames from before. After a power cut the disk may have the
        // mark as well, but then it has all frames.
        if let end, !includes(frames > 0 ? self.complete ?? complete : complete, end.checkpoint),
            salt != end.salt || frames < end.frames
        {
            return false
        }
        guard let mark else { return frames == 0 || complete == 0 }
        let isWhole = includes(complete, mark.checkpoint)
        guard frames > 0 else { return isWhole }
        guard !isOvertaken else { return false }
        let isNext = self.complete.map { ($0 ^ mark.checkpoint) & 0xff_ffff == 0 } ?? (salt != mark.salt)
        if isNext { return isWhole }
        return salt == mark.salt && frames >= mark.frames && includes(complete, self.complete ?? complete)
    }
}

/// Examines the WAL that a crash has left, before SQLite opens it (sqlite.org/fileformat2.html, section 4).
///
/// A frame's checksum covers all frames before it, too. SQLite reads a WAL up to the first frame with a wrong checksum,
/// and then overwrites the rest. After a power cut that is correct: each group is synced before the next one is
/// written, so only the last group can be incomplete, and it was not acknowledged. A group ends with the one frame that
/// marks a commit. If such a mark comes after the first bad frame, and another frame after the mark, that frame was
/// written when the bad one had already been synced: so the WAL is damaged, and SQLite would drop acknowledged commits.
///
/// Damage in the last group looks like an incomplete group and is not found. Frames from before the WAL was restarted
/// have other salts and do not count; what is left of a failed group is cut off at once (see `WALWriteBuffer`). SQLite
/// repeats the mark, to fill a sector, only in builds without SQLITE_POWERSAFE_OVERWRITE, which is on by default.
///
/// A disk writes each sector completely or not at all, and the headers of some frames lie across two sectors. If only one of
/// the two was written before a power cut, a part of the header is still that of an older frame, perhaps with the mark of
/// that frame. So in such a header a mark counts only if the frame's checksum is right.
///
/// A WAL beside a database that is not in WAL mode (section 1.3) belongs to another state or store, for example because
/// a backup was copied over the database by hand, or a restore crashed. SQLite would mix the two, because it applies
/// any WAL with right checksums. This program takes databases that are to be moved, such as backups, out of WAL mode,
/// and a store enters WAL mode before it gets a WAL. Files of a running server that were copied one after the
/// other are recognized by their marks, see `CheckpointMark`.
struct WALExaminer {
    private static let headerSize = 32
    private static let frameHeaderSize = 24
    private static let magic: UInt32 = 0x377f_0682
    /// Where the mode is in the database's header, and the number of a mode without a WAL.
    private static let (modeOffset, rollbackMode): (Int, UInt8) = (18, 1)
    /// The smallest size of a disk's sectors, in bytes; all larger sizes are multiples of it.
    private static let sectorSize = 512

    /// The checksum of everything up to some place.
    private struct Checksum: Equatable {
        var first: UInt32 = 0
        var second: UInt32 = 0

        mutating func add(_ bytes: ArraySlice<UInt8>, isBigEndian: Bool) {
            unsafe bytes.withUnsafeBytes { bytes in
                var offset = 0
                while offset + 8 <= bytes.count {
                    let one = unsafe bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self)
                    let other = unsafe bytes.loadUnaligned(fromByteOffset: offset + 4, as: UInt32.self)
                    first &+= (isBigEndian ? one.bigEndian : one.littleEndian) &+ second
                    second &+= (isBigEndian ? other.bigEndian : other.littleEndian) &+ first
                    offset += 8
                }
            }
        }
    }

    private struct FrameHeader {
        let page: UInt32
        /// Pages of the database after the commit; 0 in the frames before the last of a commit.
        let commit: UInt32
        let salts: UInt64
        let checksum: Checksum
    }

    private let descriptor: Int32
    private let isBigEndian: Bool
    private let isHeaderSound: Bool
    private var salts: UInt64
    private var checksum: Checksum
    private var state = WALState()

    /// What is wrong with a database and its WAL; nil if nothing is.
    static func fault(beside database: String) throws(SQLiteOpenError) -> SQLiteOpenError? {
        try Schema.opening(database) { () throws(SQLiteError) in try examine(database) }
    }

    private static func examine(_ database: String) throws(SQLiteError) -> SQLiteOpenError? {
        let path = database + "-wal"
        guard FileStatus.size(of: database) > 1 else { return nil }
        // Read through SQLite: closing a descriptor of our own would release SQLite's locks on the database.
        let connection = try SQLiteConnection(path: database, mode: .immutable)
        let (mark, complete) = try connection.marks()
        var state = WALState()
        if let file = try opening(path) {
            let beginning = try read(file.number, at: 0, count: headerSize + frameHeaderSize)
            if beginning.count == headerSize + frameHeaderSize {
                var mode: [UInt8] = [0]
                guard connection.readFile(at: modeOffset, into: &mode) else { throw .system("read", of: "database") }
                guard mode[0] != rollbackMode else { return .foreignWAL(path: database) }
                var examination = WALExaminer(file.number, beginning: beginning)
                if let damage = try examination.damage() { return .damagedWAL(path: path, damage) }
                state = examination.state
            } else {
                // A WAL without a frame holds nothing.
                state.end = CheckpointMark(beginning.dropFirst(headerSize))
            }
        }
        // If the WAL was cut or removed while the server ran, the log has told of the loss, and the database is checked at this start.
        let isTrusted = state.fits(mark, complete: complete) || CheckRequest(of: database).exists
        return isTrusted ? nil : .mixedFiles(path: database)
    }

    /// Nil if there is no such file.
    private static func opening(_ path: String) throws(SQLiteError) -> FileDescriptor? {
        do {
            return try FileDescriptor(openingFile: path)
        } catch {
            if error.code == ENOENT { return nil }
            throw .system(error.call, of: "WAL", code: error.code)
        }
    }

    /// - Parameters:
    ///   - descriptor: The open WAL.
    ///   - beginning: The first bytes of the WAL: its header, and the header of its first frame.
    private init(_ descriptor: Int32, beginning: [UInt8]) {
        let magic = Self.number(beginning, 0)
        isBigEndian = magic == Self.magic | 1
        var checksum = Checksum()
        checksum.add(beginning[..<24], isBigEndian: isBigEndian)
        let stored = Checksum(first: Self.number(beginning, 24), second: Self.number(beginning, 28))
        isHeaderSound =
            magic | 1 == Self.magic | 1 && Self.number(beginning, 8) == SQLiteConnection.pageSize && checksum == stored
        self.checksum = stored
        // If the header is damaged, the salts are taken from the first frame, which repeats them.
        salts = Self.salts(beginning, isHeaderSound ? 16 : Self.headerSize + 8)
        self.descriptor = descriptor
    }

    private mutating func damage() throws(SQLiteError) -> WALDamage? {
        var firstBad = isHeaderSound ? nil : Optional(0)
        var (commits, frames, follows, hasMark) = (0, 0, false, false)
        var number = 0
        let rest = try forEachFrame { (offset, header, bytes) in
            number += 1
            let isOfRound = header.salts == salts
            var expected = checksum
            if isOfRound {
                expected.add(bytes.prefix(8), isBigEndian: isBigEndian)
                expected.add(bytes.dropFirst(Self.frameHeaderSize), isBigEndian: isBigEndian)
            }
            let isLinked = isOfRound && header.page != 0 && expected == header.checksum
            // SQLite stops reading here.
            if !isLinked && firstBad == nil { firstBad = number }
            if firstBad == nil {
                if header.page == 1 && state.complete == nil {
                    state.complete = CheckpointMark.head(bytes.dropFirst(Self.frameHeaderSize))
                }
                if header.commit != 0 { state.frames = UInt32(number) }
            } else if state.frames > 0 && (1...0xff_ffff).contains(header.page) {
                // Each restart of the WAL adds one to the first salt. Remains of a power cut hardly look like that by chance.
                let later = Int32(truncatingIfNeeded: Int(header.salts >> 32) - Int(salts >> 32))
                if (1...0xffff).contains(later) { state.isOvertaken = true }
            }
            if firstBad != nil {
                if isLinked && hasMark { follows = true }
                hasMark = header.commit != 0 && (isLinked || Self.isInOneSector(offset))
                if isOfRound {
                    frames += 1
                    if hasMark { commits += 1 }
                }
            }
            checksum = header.checksum
        }
        state.end = CheckpointMark(rest)
        state.salt = isHeaderSound ? UInt32(salts >> 32) : nil
        guard let firstBad, follows || commits > 1 else { return nil }
        return WALDamage(frame: firstBad, commits: max(1, commits), frames: frames)
    }

    /// Whether the header of the frame at this offset lies within one sector.
    private static func isInOneSector(_ offset: Int) -> Bool {
        offset / sectorSize == (offset + frameHeaderSize - 1) / sectorSize
    }

    /// Calls `body` for each complete frame, with its offset in the WAL, its header, and its bytes, which include the header.
    ///
    /// - Returns: What follows the last of them.
    private func forEachFrame(
        _ body: (Int, FrameHeader, ArraySlice<UInt8>) -> Void
    ) throws(SQLiteError) -> ArraySlice<UInt8> {
        // The page size in the header may be damaged.
        let frameSize = Self.frameHeaderSize + SQLiteConnection.pageSize
        let atOnce = max(1, (1 << 20) / frameSize)
        var offset = Self.headerSize
        while true {
            let bytes = try Self.read(descriptor, at: offset, count: atOnce * frameSize)
            for start in stride(from: 0, through: bytes.count - frameSize, by: frameSize) {
                let header = FrameHeader(
                    page: Self.number(bytes, start), commit: Self.number(bytes, start + 4),
                    salts: Self.salts(bytes, start + 8),
                    checksum: Checksum(first: Self.number(bytes, start + 16), second: Self.number(bytes, start + 20))
                )
                body(offset + start, header, bytes[start..<(start + frameSize)])
            }
            guard bytes.count == atOnce * frameSize else { return bytes.suffix(bytes.count % frameSize) }
            offset += bytes.count
        }
    }

    /// Reads bytes, fewer than `count` at the end of the file.
    private static func read(_ descriptor: Int32, at offset: Int, count: Int) throws(SQLiteError) -> [UInt8] {
        do {
            return try BlockingIO.read(from: descriptor, at: offset, count: count)
        } catch {
            throw .system("read", of: "WAL", code: error.code)
        }
    }

    private static func number(_ bytes: ArraySlice<UInt8>, _ offset: Int) -> UInt32 {
        bytes[offset..<(offset + 4)].reduce(0) { $0 << 8 | UInt32($1) }
    }

    private static func number(_ bytes: [UInt8], _ offset: Int) -> UInt32 { number(bytes[...], offset) }

    private static func salts(_ bytes: [UInt8], _ offset: Int) -> UInt64 {
        UInt64(number(bytes, offset)) << 32 | UInt64(number(bytes, offset + 4))
    }
}
