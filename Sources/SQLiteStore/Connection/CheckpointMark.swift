import CSQLite
import Synchronization

/// Says how far the checkpoints of a database have come, so that a start recognizes files that were copied one after the
/// other while the server ran.
///
/// Checkpoints are counted. A program that copies the database from its beginning to its end reads, first of all, how many
/// were complete: the upper three bytes of `PRAGMA user_version`, written behind the last page of a checkpoint and before its
/// sync. At the very end, behind the last page, it reads which one was begun: this mark, written before the first page. The
/// first commit of each round of the WAL repeats the number of complete checkpoints, on the database's first page. So a start
/// knows between which two states the pages of a copy are, and whether the WAL has all that lies between them; see
/// `WALState`. An ordinary commit costs nothing, a round one page, and a checkpoint that makes the database longer one sync.
struct CheckpointMark: Equatable {
    static let length = 16
    /// The version of the tables, in the lowest byte of `PRAGMA user_version`; see `Schema`.
    static let schemaVersion = 6
    private static let magic = Array("tokc".utf8)
    /// Where the number of complete checkpoints is in the database's first page.
    static let headOffset = 60

    /// The number of the checkpoint; only its lower 24 bits count.
    let checkpoint: UInt32
    /// The first salt of the round whose frames it moves (sqlite.org/walformat.html).
    var salt: UInt32 = 0
    /// The last frame that it moves.
    var frames: UInt32 = 0

    var bytes: [UInt8] { Self.magic + [checkpoint, salt, frames].flatMap { Self.bytes($0) } }

    /// The pages of a database according to its first one.
    static func pages(_ page: ArraySlice<UInt8>) -> Int { Int(number(page.dropFirst(28))) }

    /// The number of complete checkpoints that a first page has; nil if it is of another version.
    static func head(_ page: ArraySlice<UInt8>) -> UInt32? {
        let number = number(page.dropFirst(headOffset))
        return number & 0xff == schemaVersion ? number >> 8 : nil
    }

    private static func number(_ bytes: ArraySlice<UInt8>) -> UInt32 {
        bytes.prefix(4).reduce(0) { $0 << 8 | UInt32($1) }
    }

    fileprivate static func bytes(_ number: UInt32) -> [UInt8] {
        [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: number >> $0) }
    }

    /// Whether a number of complete checkpoints includes this one; it has 24 bits and starts again at 0.
    static func includes(_ complete: UInt32, _ checkpoint: UInt32) -> Bool {
        (complete &- checkpoint) & 0xff_ffff < 0x80_0000
    }
}

extension CheckpointMark {
    /// Nil if the bytes are no mark.
    init?(_ bytes: ArraySlice<UInt8>) {
        guard bytes.count == Self.length, bytes.starts(with: Self.magic) else { return nil }
        let numbers = stride(from: 4, to: Self.length, by: 4).map { Self.number(bytes.dropFirst($0)) }
        self.init(checkpoint: numbers[0], salt: numbers[1], frames: numbers[2])
    }
}

/// What a WAL says of the moments of its beginning and its end.
struct WALState {
    /// The first salt of its round; nil without a sound header.
    var salt: UInt32?
    /// Frames up to the last commit.
    var frames: UInt32 = 0
    /// How many checkpoints were complete when its round began; nil if another program or version began it.
    var complete: UInt32?
    /// Whether frames of a later round follow the commits: it was overwritten while it was copied.
    var isOvertaken = false
    /// The mark that it got when it was emptied, after which it keeps its length.
    var end: CheckpointMark?

    /// Whether database and WAL have all that was committed when their copying began, and nothing in part; always true
    /// unless they were copied one after the other.
    ///
    /// - Parameters:
    ///   - mark: The database's; nil if it has none, as after a change by another program.
    ///   - complete: The number of complete checkpoints in its first page.
    func fits(_ mark: CheckpointMark?, complete: UInt32) -> Bool {
        let includes = CheckpointMark.includes
        // A copy of its beginning from before it was emptied. After a power cut the disk may have the mark, and all frames.
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

/// The file of a database with its marks: one of the methods of the files that the standard file system opens is replaced.
@safe enum MarkedDatabase {
    private typealias File = UnsafeMutablePointer<sqlite3_file>

    /// The methods; the standard file system has one set of them for all databases.
    @safe private struct Methods: @unchecked Sendable {
        // Unchecked: filled in once, only read afterwards, and never freed.
        let standard, own: UnsafePointer<sqlite3_io_methods>

        init(_ standard: UnsafePointer<sqlite3_io_methods>) {
            let own = UnsafeMutablePointer<sqlite3_io_methods>.allocate(capacity: 1)
            unsafe own.initialize(to: standard.pointee)
            unsafe own.pointee.xTruncate = { unsafe MarkedDatabase.truncate($0, $1) }
            unsafe (self.standard, self.own) = (standard, UnsafePointer(own))
        }
    }

    /// Set with the first database.
    private static let methods = Mutex<Methods?>(nil)

    /// Replaces the method of a database that was just opened.
    static func install(in file: UnsafeMutablePointer<sqlite3_file>) {
        guard let standard = unsafe file.pointee.pMethods else { return }
        let known = methods.withLock { methods in
            let known = unsafe methods ?? Methods(standard)
            methods = known
            return known
        }
        if unsafe known.standard == standard { unsafe file.pointee.pMethods = known.own }
    }

    /// The number that a checkpoint writes when it is complete, followed by a byte that says whether there is one.
    ///
    /// In the memory that SQLite provides behind the standard file system's file, with zeros at first.
    private static func number(_ file: File) -> UnsafeMutablePointer<UInt32> {
        unsafe (UnsafeMutableRawPointer(file) + WALFileSystem.standardSize).assumingMemoryBound(to: UInt32.self)
    }

    /// Begins a checkpoint with this number, or, with nil, ends it.
    static func setNumber(_ checkpoint: UInt32?, of file: UnsafeMutablePointer<sqlite3_file>) {
        unsafe number(file).pointee = checkpoint.map { $0 << 8 | 1 } ?? 0
    }

    /// Called by SQLite behind the last page of a checkpoint of the whole WAL, before it syncs the database.
    ///
    /// Pages never become fewer, so there is nothing to cut off but the mark.
    private static func truncate(_ file: File?, _ size: sqlite3_int64) -> Int32 {
        guard let file = unsafe file, let methods = unsafe methods.withLock(\.self)?.standard.pointee else {
            return SQLITE_MISUSE
        }
        let number = unsafe number(file).pointee
        guard number != 0 else { return unsafe methods.xTruncate(file, size) }
        return unsafe CheckpointMark.bytes(number).withUnsafeBytes { bytes in
            unsafe methods.xWrite(file, bytes.baseAddress, 3, sqlite3_int64(CheckpointMark.headOffset))
        }
    }
}
