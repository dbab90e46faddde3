import CSQLite
import Glibc
import System

/// A copy of a database that is made step by step while the database changes.
///
/// What the source's connection writes between two steps, SQLite also writes to the copy, so that copying never has to
/// start again (sqlite.org/c3ref/backup_finish.html). A complete copy is the database as of the last step.
///
/// It only reads the source: whoever makes it writes what each step returns to a file; see `CopyFile`.
///
/// Used on the source's thread.
@safe final class DatabaseCopy {
    private let source: SQLiteConnection
    private let target: SQLiteConnection
    private let handle: OpaquePointer

    /// A step of the copying: how many pages are left, how many there are, and what is to be written.
    typealias Step = (remaining: Int, total: Int, part: CopyFile.Part)

    init(of source: SQLiteConnection) throws(SQLiteError) {
        target = try SQLiteConnection(path: CopyFile.path, mode: .copy)
        // The copy is not used before it is complete and synced; after a crash an incomplete one is discarded.
        try target.giveUpSafety()
        guard let handle = unsafe sqlite3_backup_init(target.handle, "main", source.handle, "main") else {
            throw target.lastError
        }
        unsafe self.handle = unsafe handle
        self.source = source
    }

    deinit {
        _ = unsafe sqlite3_backup_finish(handle)
    }

    /// Copies some pages.
    func step(pages: Int32) throws(SQLiteError) -> Step {
        let code = unsafe sqlite3_backup_step(handle, pages)
        guard let file = unsafe CopyFile.opened(as: target.file), !file.isFull else {
            let message = "while its disk took nothing, \(CopyFile.limit >> 20) MiB of the store have changed"
            throw SQLiteError(code: SQLITE_FULL, message: message)
        }
        let total = Int(unsafe sqlite3_backup_pagecount(handle))
        switch code {
        case SQLITE_DONE: return (0, total, file.take())
        // Busy and locked: the lock will be released, and another step continues.
        case SQLITE_OK, SQLITE_BUSY, SQLITE_LOCKED:
            return (max(1, Int(unsafe sqlite3_backup_remaining(handle))), total, file.take())
        default: throw SQLiteError(code: code, message: unsafe String(cString: sqlite3_errstr(code)))
        }
    }
}

/// The file of a database copy while SQLite makes it: keeps what SQLite writes in memory, until somebody takes it and writes it to
/// the disk.
///
/// SQLite writes to a copy also while the source's connection commits, and a commit must not wait for the disk of a backup, which
/// may be slow or hang.
///
/// The memory that SQLite provides for an open file holds a pointer to the methods below, and then one to this object. Used on the
/// thread of the copy's connection.
@safe final class CopyFile {
    /// The pages that were written and not taken yet, by their offsets.
    private var pages: [Int: [UInt8]] = [:]
    private var size = 0
    /// Whether more was written than the limit allows, so that the copy has failed.
    private(set) var isFull = false

    /// The largest number of bytes that are kept.
    static let limit = 32 << 20
    /// The path by which SQLite opens it; no such file exists.
    static let path = "/token-cache copy"

    /// What is to be written to the copy's file.
    struct Part {
        var pages: [Int: [UInt8]] = [:]
        /// The bytes of the whole file.
        var size = 0

        /// Calls `body` with pages that follow one another, together, and their offset.
        func forEachPiece(_ body: ([UInt8], Int) throws(SystemError) -> Void) throws(SystemError) {
            var (piece, start): ([UInt8], Int) = ([], 0)
            for (offset, page) in pages.sorted(by: { $0.key < $1.key }) {
                if offset != start + piece.count {
                    if !piece.isEmpty { try body(piece, start) }
                    (piece, start) = ([], offset)
                }
                piece += page
            }
            if !piece.isEmpty { try body(piece, start) }
        }
    }

    func take() -> Part {
        defer { pages = [:] }
        return Part(pages: pages, size: size)
    }

    private func write(_ bytes: UnsafeRawPointer?, _ count: Int32, at offset: Int) -> Int32 {
        isFull = isFull || pages.count * Int(count) >= Self.limit
        guard !isFull else {
            pages = [:]
            return SQLITE_FULL
        }
        pages[offset] = unsafe Array(UnsafeRawBufferPointer(start: bytes, count: Int(count)))
        size = max(size, offset + Int(count))
        return SQLITE_OK
    }

    private func truncate(to size: Int) -> Int32 {
        pages = pages.filter { $0.key < size }
        self.size = size
        return SQLITE_OK
    }

    // MARK: - SQLite's file system

    /// The name for `sqlite3_open_v2`; nil if SQLite does not accept it.
    static let fileSystem: String? = register("token-cache-copy") ? "token-cache-copy" : nil

    private static func register(_ name: String) -> Bool {
        guard let standard = unsafe sqlite3_vfs_find(nil) else { return false }
        // Both live as long as the process, because SQLite keeps pointers to them.
        let own = UnsafeMutablePointer<sqlite3_vfs>.allocate(capacity: 1)
        let methods = UnsafeMutablePointer<sqlite3_io_methods>.allocate(capacity: 1)
        unsafe methods.initialize(to: Self.methods)
        unsafe own.initialize(to: standard.pointee)
        unsafe own.pointee.zName = UnsafePointer(name.withCString { unsafe strdup($0) })
        unsafe own.pointee.szOsFile = Int32(2 * MemoryLayout<sqlite3_file>.stride)
        unsafe own.pointee.pNext = nil
        unsafe own.pointee.pAppData = UnsafeMutableRawPointer(methods)
        unsafe own.pointee.xOpen = { own, _, memory, _, _ in
            guard let methods = unsafe own?.pointee.pAppData, let memory = unsafe memory else { return SQLITE_MISUSE }
            unsafe memory.pointee.pMethods = UnsafePointer(methods.assumingMemoryBound(to: sqlite3_io_methods.self))
            let object = unsafe Unmanaged.passRetained(CopyFile()).toOpaque()
            unsafe UnsafeMutableRawPointer(memory + 1).storeBytes(of: object, as: UnsafeMutableRawPointer.self)
            return SQLITE_OK
        }
        // There is never a journal.
        unsafe own.pointee.xAccess = { _, _, _, result in
            unsafe result?.pointee = 0
            return SQLITE_OK
        }
        return unsafe sqlite3_vfs_register(own, 0) == SQLITE_OK
    }

    private static func unmanaged(_ memory: UnsafeMutablePointer<sqlite3_file>?) -> Unmanaged<CopyFile>? {
        guard let memory = unsafe memory else { return nil }
        return unsafe Unmanaged.fromOpaque(UnsafeRawPointer(memory + 1).load(as: UnsafeMutableRawPointer.self))
    }

    /// The file of a connection to `path`.
    static func opened(as memory: UnsafeMutablePointer<sqlite3_file>?) -> CopyFile? {
        unsafe unmanaged(memory)?.takeUnretainedValue()
    }

    /// See sqlite.org/c3ref/io_methods.html.
    private static var methods: sqlite3_io_methods {
        unsafe sqlite3_io_methods(
            iVersion: 1,
            xClose: { memory in
                unsafe CopyFile.unmanaged(memory)?.release()
                return SQLITE_OK
            },
            // SQLite reads a page again that it has written before only to replace the whole of it.
            xRead: { _, bytes, count, _ in
                if let bytes = unsafe bytes { unsafe memset(bytes, 0, Int(count)) }
                return CSQLITE_IOERR_SHORT_READ
            },
            xWrite: { unsafe CopyFile.opened(as: $0)?.write($1, $2, at: Int($3)) ?? SQLITE_MISUSE },
            xTruncate: { unsafe CopyFile.opened(as: $0)?.truncate(to: Int($1)) ?? SQLITE_MISUSE },
            xSync: { _, _ in SQLITE_OK },
            xFileSize: { memory, size in
                unsafe size?.pointee = sqlite3_int64(CopyFile.opened(as: memory)?.size ?? 0)
                return SQLITE_OK
            },
            xLock: { _, _ in SQLITE_OK }, xUnlock: { _, _ in SQLITE_OK },
            xCheckReservedLock: { _, isLocked in
                unsafe isLocked?.pointee = 0
                return SQLITE_OK
            },
            xFileControl: { _, _, _ in SQLITE_NOTFOUND }, xSectorSize: { _ in 0 }, xDeviceCharacteristics: { _ in 0 },
            xShmMap: nil, xShmLock: nil, xShmBarrier: nil, xShmUnmap: nil, xFetch: nil, xUnfetch: nil)
    }
}
