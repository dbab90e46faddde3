import CSQLite
import Synchronization

/// The mark at the end of a database, which says which checkpoint was begun last.
///
/// Programs such as borg, rsync and tar copy the files of a running server one after the other, each from its beginning to its
/// end. Three numbers show a later start whether such copies belong together, see `WALState`. They are read at these places:
///
/// - at the beginning of the database, how many checkpoints were complete: the upper three bytes of `PRAGMA user_version`. A
///   checkpoint writes them after its last page, and before the database is synced
/// - at the end of the database, after the last page, the number of the checkpoint that was begun last: this mark. It is written
///   before the first page of the checkpoint
/// - in the WAL, how many checkpoints were complete when its round began, because the first commit of a round writes the
///   database's first page with that number
///
/// An ordinary commit costs nothing more, a round one page, and a checkpoint that makes the database longer one sync.
struct CheckpointMark {
    static let length = 16
    /// The version of the tables, in the lowest byte of `PRAGMA user_version`; see `Schema`.
    static let schemaVersion = 6
    private static let magic = Array("tokc".utf8)
    /// Where `PRAGMA user_version` and the number of pages are in the database's first page (sqlite.org/fileformat2.html).
    static let (headOffset, pagesOffset) = (60, 28)

    /// The number of the checkpoint, of which the lower 24 bits are compared.
    let checkpoint: UInt32
    /// Identifies the round of the WAL whose frames the checkpoint moves: its first salt (sqlite.org/walformat.html).
    var salt: UInt32 = 0
    /// How many frames of the round the checkpoint moves.
    var frames: UInt32 = 0

    var bytes: [UInt8] { Self.magic + [checkpoint, salt, frames].flatMap { Self.bytes($0) } }

    /// How many pages a database has according to its first page.
    static func pages(_ page: ArraySlice<UInt8>) -> Int { Int(number(page.dropFirst(pagesOffset))) }

    /// How many checkpoints were complete according to a database's first page; nil if its tables are of another version.
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

    /// Whether this checkpoint is among the complete ones; their number has 24 bits and starts again at 0.
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

/// Replaces one method of the database's file, so that a checkpoint writes its number when it is complete.
@safe enum MarkedDatabase {
    private typealias File = UnsafeMutablePointer<sqlite3_file>

    /// The standard file system's methods, the same for all databases, and a copy in which one is replaced.
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

    /// Called by SQLite after the last page of a checkpoint of the whole WAL, before it syncs the database.
    ///
    /// A store's database never becomes shorter, so the only thing that would be cut off is the mark.
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
