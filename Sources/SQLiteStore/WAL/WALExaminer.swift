internal import Glibc
internal import System

/// Examines the WAL that a crash has left, before SQLite opens it (sqlite.org/fileformat2.html, section 4).
///
/// SQLite reads a WAL up to the first frame with a wrong checksum, which covers all frames before it, and then
/// overwrites the rest. After a power cut that is correct: each group is synced before the next one is written, so only
/// the last group can be incomplete, and it was not acknowledged. A group ends with the one frame that marks a commit.
/// A frame that follows such a mark after the first bad frame was written when the bad frame had already been synced:
/// so the WAL is damaged, and SQLite would drop acknowledged commits.
///
/// Damage in the last group looks like an incomplete group and is not found. Frames from before the WAL was restarted
/// have other salts and do not count; what is left of a failed group is cut off at once (see `WALWriteBuffer`). SQLite
/// repeats the mark, to fill a sector, only in builds without SQLITE_POWERSAFE_OVERWRITE, which is on by default.
///
/// A disk writes each sector whole or not at all. Where a frame's head lies across two sectors, an incomplete group may have
/// only one of them, and an older frame's mark may stand beside its own salts or checksum. Such a mark counts only if the
/// frame is sound.
struct WALExaminer {
    private static let headSize = 32
    private static let frameHeadSize = 24
    private static let magic: UInt32 = 0x377f_0682
    /// The least that any disk writes whole; larger sectors begin at multiples of this too.
    private static let sectorSize = 512

    /// The checksum of everything before.
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

    private struct Frame {
        let page: UInt32
        /// Pages of the database after the commit; 0 in the frames before the last of a commit.
        let commit: UInt32
        let salts: UInt64
        let checksum: Checksum
    }

    private let descriptor: Int32
    private let pageSize: Int
    private let isBigEndian: Bool
    private let isHeadSound: Bool
    private var salts: UInt64
    private var checksum: Checksum

    /// The damage of a WAL; nil if it is sound or does not exist.
    static func damage(of path: String) throws(SQLiteError) -> WALDamage? {
        let descriptor = retryingInterrupts { unsafe open(path, O_RDONLY | O_CLOEXEC) }
        guard descriptor >= 0 else {
            guard errno == ENOENT || errno == ENOTDIR else { throw .system("open", of: "WAL") }
            return nil
        }
        defer { close(descriptor) }
        let head = try read(descriptor, at: 0, count: headSize + frameHeadSize)
        // A WAL without a frame holds nothing.
        guard head.count == headSize + frameHeadSize else { return nil }
        var found: WALDamage?
        for pageSize in pageSizes(head) {
            var examination = WALExaminer(descriptor, head: head, pageSize: pageSize)
            let damage = try examination.damage()
            if let damage, damage.frames > found?.frames ?? 0 { found = damage }
            if examination.isHeadSound { break }
        }
        return found
    }

    /// The page sizes to try: the one that the header states, and, as the header may be damaged, all that this program has used.
    private static func pageSizes(_ head: [UInt8]) -> [Int] {
        let size = Int(number(head, 8))
        let isSize = size >= 512 && size <= 65_536 && size & (size - 1) == 0
        let used = [PageSize.ofNew, PageSize.ofEarlier]
        return isSize ? [size] + used.filter { $0 != size } : used
    }

    /// - Parameters:
    ///   - descriptor: The open WAL.
    ///   - head: The first bytes of the WAL: its header, and the header of its first frame.
    ///   - pageSize: The page size to assume.
    private init(_ descriptor: Int32, head: [UInt8], pageSize: Int) {
        let magic = Self.number(head, 0)
        isBigEndian = magic == Self.magic | 1
        var checksum = Checksum()
        checksum.add(head[..<24], isBigEndian: isBigEndian)
        let stored = Checksum(first: Self.number(head, 24), second: Self.number(head, 28))
        isHeadSound = magic | 1 == Self.magic | 1 && Int(Self.number(head, 8)) == pageSize && checksum == stored
        self.pageSize = pageSize
        self.checksum = stored
        // Without a valid head, the first frame has the salts.
        salts = Self.salts(head, isHeadSound ? 16 : Self.headSize + 8)
        self.descriptor = descriptor
    }

    private mutating func damage() throws(SQLiteError) -> WALDamage? {
        var firstBad = isHeadSound ? nil : Optional(0)
        var (commits, frames, follows, hasMark) = (0, 0, false, false)
        var number = 0
        try forEachFrame { (offset, frame, content) in
            number += 1
            let isOfRound = frame.salts == salts
            var expected = checksum
            if isOfRound {
                expected.add(content.prefix(8), isBigEndian: isBigEndian)
                expected.add(content.dropFirst(Self.frameHeadSize), isBigEndian: isBigEndian)
            }
            let isLinked = isOfRound && frame.page != 0 && expected == frame.checksum
            // SQLite stops reading here.
            if !isLinked && firstBad == nil { firstBad = number }
            if firstBad != nil {
                if isLinked && hasMark { follows = true }
                hasMark = frame.commit != 0 && (isLinked || Self.isInOneSector(offset))
                if isOfRound {
                    frames += 1
                    if hasMark { commits += 1 }
                }
            }
            checksum = frame.checksum
        }
        guard let firstBad, follows || commits > 1 else { return nil }
        return WALDamage(frame: firstBad, commits: max(1, commits), frames: frames)
    }

    /// Whether a frame's head that begins there lies in one sector.
    private static func isInOneSector(_ offset: Int) -> Bool {
        offset / sectorSize == (offset + frameHeadSize - 1) / sectorSize
    }

    /// Calls `body` with each complete frame, its place in the WAL and its head.
    private func forEachFrame(_ body: (Int, Frame, ArraySlice<UInt8>) -> Void) throws(SQLiteError) {
        let frameSize = Self.frameHeadSize + pageSize
        let atOnce = max(1, (1 << 20) / frameSize)
        var offset = Self.headSize
        while true {
            let bytes = try Self.read(descriptor, at: offset, count: atOnce * frameSize)
            for start in stride(from: 0, through: bytes.count - frameSize, by: frameSize) {
                let frame = Frame(
                    page: Self.number(bytes, start), commit: Self.number(bytes, start + 4),
                    salts: Self.salts(bytes, start + 8),
                    checksum: Checksum(first: Self.number(bytes, start + 16), second: Self.number(bytes, start + 20))
                )
                body(offset + start, frame, bytes[start..<(start + frameSize)])
            }
            guard bytes.count == atOnce * frameSize else { return }
            offset += bytes.count
        }
    }

    /// Returns fewer bytes at the end of the file.
    private static func read(_ descriptor: Int32, at offset: Int, count: Int) throws(SQLiteError) -> [UInt8] {
        do throws(SystemError) {
            return try BlockingIO.read(from: descriptor, at: offset, count: count)
        } catch {
            throw .system("read", of: "WAL", code: error.code)
        }
    }

    private static func number(_ bytes: [UInt8], _ offset: Int) -> UInt32 {
        bytes[offset..<(offset + 4)].reduce(0) { $0 << 8 | UInt32($1) }
    }

    private static func salts(_ bytes: [UInt8], _ offset: Int) -> UInt64 {
        UInt64(number(bytes, offset)) << 32 | UInt64(number(bytes, offset + 4))
    }
}
