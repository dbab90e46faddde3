import CSQLite
import Glibc
import Metrics
import System
import TokenStore

/// SQLite's virtual file system for the database (sqlite.org/vfs.html): its own `unix-excl`, except that a commit's
/// frames are written to the WAL in one call.
///
/// `unix-excl` keeps the WAL's index in the memory of this process, shared by all its connections, and locks the
/// database against other processes while one of them is open. In the default file system the index is a file mapped
/// into memory (`tokens.db-shm`): truncating it ends the server with a SIGBUS, and each read transaction takes two
/// system calls for its lock.
///
/// SQLite writes each frame's head and page separately, hundreds of calls for a group. `WALWriteBuffer` gathers them
/// until they are needed, at the latest for the sync with which every commit ends before readers can see it.
enum WALFileSystem {
    /// The name for `sqlite3_open_v2`; nil if SQLite has no `unix-excl` or does not accept ours.
    static let name: String? = register("token-cache") ? "token-cache" : nil

    private static func open(
        _ own: UnsafeMutablePointer<sqlite3_vfs>?, _ path: UnsafePointer<CChar>?,
        _ file: UnsafeMutablePointer<sqlite3_file>?, _ flags: Int32, _ outFlags: UnsafeMutablePointer<Int32>?
    ) -> Int32 {
        guard let own = unsafe own, let file = unsafe file else { return SQLITE_MISUSE }
        let standard = unsafe own.pointee.pAppData.assumingMemoryBound(to: sqlite3_vfs.self)
        guard flags & SQLITE_OPEN_WAL != 0, let path = unsafe path else {
            let code = unsafe standard.pointee.xOpen(standard, path, file, flags, outFlags)
            if code == SQLITE_OK && flags & SQLITE_OPEN_MAIN_DB != 0 { unsafe MarkedDatabase.install(in: file) }
            return code
        }
        return unsafe WALWriteBuffer.open(String(cString: path), in: file) {
            unsafe standard.pointee.xOpen(standard, path, $0, flags, outFlags)
        }
    }

    /// Bytes of the standard file system's file; `WALWriteBuffer.headLength` bytes follow it in the memory for a database.
    static var standardSize: Int { unsafe Int(sqlite3_vfs_find("unix-excl").pointee.szOsFile) }

    private static func register(_ ownName: String) -> Bool {
        guard let standard = unsafe sqlite3_vfs_find("unix-excl") else { return false }
        // Both live as long as the process, because SQLite keeps pointers to them.
        let own = UnsafeMutablePointer<sqlite3_vfs>.allocate(capacity: 1)
        unsafe own.initialize(to: standard.pointee)
        unsafe own.pointee.zName = UnsafePointer(ownName.withCString { unsafe strdup($0) })
        unsafe own.pointee.szOsFile += Int32(WALWriteBuffer.headLength)
        unsafe own.pointee.pNext = nil
        unsafe own.pointee.pAppData = UnsafeMutableRawPointer(standard)
        unsafe own.pointee.xOpen = { unsafe WALFileSystem.open($0, $1, $2, $3, $4) }
        return unsafe sqlite3_vfs_register(own, 0) == SQLITE_OK
    }
}

/// An open WAL that gathers what SQLite writes, and writes it to the file in one call.
///
/// The memory that SQLite provides for an open file holds a pointer to the methods below, a pointer to this object, and
/// then the standard file system's file. SQLite calls from one thread at a time, between `open` and `xClose`.
@safe final class WALWriteBuffer {
    /// Bytes before the standard file system's file; a multiple of any alignment.
    static let headLength = 16

    private let file: UnsafeMutablePointer<sqlite3_file>
    private let path: String
    private var gathered: [UInt8] = []
    /// Where in the file the first gathered byte belongs.
    private var start: sqlite3_int64 = 0
    /// Counts the duration of each sync of the file, failed ones included; nil if it is not measured.
    var syncTime: Histogram?
    /// The offset of the first byte that was written since the last sync; nil if there is none.
    private var unsyncedStart: sqlite3_int64?
    /// Whether the file has not changed since this object last synced it.
    ///
    /// False at first, because a process that crashed may have left frames that are in the page cache and not on the disk.
    private var isSynced = false

    /// The most that is gathered before it is written, by a large transaction.
    private static let limit = 1 << 20
    /// Bytes of the WAL's header.
    private static let header: sqlite3_int64 = 32
    /// The most that is written in one call: the standard file system misreads lengths of 128 KiB and more.
    private static let part = 64 << 10

    /// Bytes that must stay free on the disk, as the next checkpoint needs them; a write that would take them fails.
    var reserve = 0

    /// The mark that is written at the end when the WAL is emptied; nil to truncate the WAL to nothing.
    var endMark: CheckpointMark?

    /// The file's identity; nil if the path was changed to another file during the opening.
    let identity: FileIdentity?

    private init(_ file: UnsafeMutablePointer<sqlite3_file>, _ path: String, _ identity: FileIdentity?) {
        unsafe self.file = unsafe file
        (self.path, self.identity) = (path, identity)
    }

    /// Opens a WAL in the memory that SQLite gives for it.
    ///
    /// - Parameters:
    ///   - path: Its path.
    ///   - memory: As large as `WALFileSystem` has told SQLite.
    ///   - open: Opens the standard file system's file and returns its result.
    static func open(
        _ path: String, in memory: UnsafeMutablePointer<sqlite3_file>,
        _ open: (UnsafeMutablePointer<sqlite3_file>) -> Int32
    ) -> Int32 {
        let place = UnsafeMutableRawPointer(memory)
        let file = unsafe (place + headLength).assumingMemoryBound(to: sqlite3_file.self)
        let before = FileIdentity.find(path)?.identity
        let result = unsafe open(file)
        guard result == SQLITE_OK else {
            // After an error, SQLite does not call xClose.
            unsafe memory.pointee.pMethods = nil
            return result
        }
        let after = FileIdentity.find(path)?.identity
        // If the file did not exist, the call has just created it.
        let identity = before == nil || before == after ? after : nil
        let buffer = unsafe Unmanaged.passRetained(WALWriteBuffer(file, path, identity))
        unsafe (place + MemoryLayout<sqlite3_file>.stride).storeBytes(
            of: buffer.toOpaque(), as: UnsafeMutableRawPointer.self)
        unsafe memory.pointee.pMethods = methods.pointer
        return SQLITE_OK
    }

    private static func unmanaged(_ memory: UnsafeMutablePointer<sqlite3_file>?) -> Unmanaged<WALWriteBuffer>? {
        guard let memory = unsafe memory else { return nil }
        let place = unsafe UnsafeMutableRawPointer(memory) + MemoryLayout<sqlite3_file>.stride
        return unsafe Unmanaged.fromOpaque(place.load(as: UnsafeMutableRawPointer.self))
    }

    private static func buffer(_ memory: UnsafeMutablePointer<sqlite3_file>?) -> WALWriteBuffer? {
        unsafe unmanaged(memory)?.takeUnretainedValue()
    }

    /// The buffer of a file that SQLite has open; nil if the file has none.
    static func opened(as memory: UnsafeMutablePointer<sqlite3_file>?) -> WALWriteBuffer? {
        guard let methods = unsafe memory?.pointee.pMethods, unsafe methods == self.methods.pointer else { return nil }
        return unsafe buffer(memory)
    }

    // MARK: - Writing

    private func write(_ bytes: UnsafeRawPointer?, _ count: Int32, at offset: sqlite3_int64) -> Int32 {
        let follows = offset == start + sqlite3_int64(gathered.count)
        if !follows || gathered.count >= Self.limit {
            let result = flush()
            guard result == SQLITE_OK else { return result }
        }
        if gathered.isEmpty { start = offset }
        unsafe gathered.append(contentsOf: UnsafeRawBufferPointer(start: bytes, count: Int(count)))
        return SQLITE_OK
    }

    /// Writes the gathered bytes; after an error they are discarded, because their transaction has failed.
    private func flush() -> Int32 {
        guard !gathered.isEmpty else { return SQLITE_OK }
        defer { gathered.removeAll(keepingCapacity: true) }
        var size: sqlite3_int64 = 0
        let sized = unsafe file.pointee.pMethods.pointee.xFileSize(file, &size)
        guard sized == SQLITE_OK else { return sized }
        // The file was truncated. Writing here would leave a hole, and SQLite would read only up to it.
        guard start <= size else { return CSQLITE_IOERR_WRITE }
        guard hasRoom(upTo: Int(start) + gathered.count) else { return takeBack(after: SQLITE_FULL) }
        isSynced = false
        unsyncedStart = min(unsyncedStart ?? start, start)
        var written = 0
        while written < gathered.count {
            let part = gathered[written..<min(written + Self.part, gathered.count)]
            let result = unsafe part.withUnsafeBytes { bytes in
                unsafe file.pointee.pMethods.pointee.xWrite(
                    file, bytes.baseAddress, Int32(bytes.count), start + sqlite3_int64(written)
                )
            }
            guard result == SQLITE_OK else { return takeBack(after: result) }
            written += part.count
        }
        return SQLITE_OK
    }

    /// Whether `reserve` stays free when the file is written up to an offset.
    private func hasRoom(upTo end: Int) -> Bool {
        guard reserve > 0, let free = FileSystem(of: path).freeBytes else { return true }
        // Blocks that the file has already are written over. It may be longer than its blocks, as it may have holes.
        return free - max(0, end - FileStatus.allocatedSize(of: path)) >= reserve
    }

    /// Writes the gathered bytes, so that the file is as SQLite expects it, and then calls `body` with the file.
    private static func afterFlush(
        _ memory: UnsafeMutablePointer<sqlite3_file>?,
        _ body: (UnsafeMutablePointer<sqlite3_file>, sqlite3_io_methods) -> Int32
    ) -> Int32 {
        guard let buffer = unsafe buffer(memory) else { return SQLITE_MISUSE }
        let result = buffer.flush()
        return unsafe result == SQLITE_OK ? body(buffer.file, buffer.file.pointee.pMethods.pointee) : result
    }

    /// Syncs the file, unless it is synced already: SQLite syncs the WAL before each checkpoint although every commit
    /// has done so, and on a slow disk all writes would wait for that.
    private func synchronize(_ flags: Int32) -> Int32 {
        let flushed = flush()
        guard flushed == SQLITE_OK else { return flushed }
        guard !isSynced else { return SQLITE_OK }
        let began = ContinuousClock.now
        let result = unsafe file.pointee.pMethods.pointee.xSync(file, flags)
        syncTime?.add(ContinuousClock.now - began)
        guard result == SQLITE_OK else { return takeBack(after: result) }
        unsyncedStart = nil
        isSynced = true
        return result
    }

    private func truncate(to size: sqlite3_int64) -> Int32 {
        let flushed = flush()
        guard flushed == SQLITE_OK else { return flushed }
        isSynced = false
        let methods = unsafe file.pointee.pMethods.pointee
        guard size == 0, let mark = endMark else { return unsafe methods.xTruncate(file, size) }
        // If a program is copying the WAL, a shorter file would look as if there had been fewer commits. So the file keeps its
        // length, and the mark is its last part. The hole in between takes no space on the disk, and SQLite takes a WAL without
        // frames for an empty one.
        var length: sqlite3_int64 = 0
        let sized = unsafe methods.xFileSize(file, &length)
        guard sized == SQLITE_OK else { return sized }
        guard length > Self.header else { return unsafe methods.xTruncate(file, size) }
        let frameSize = sqlite3_int64(SQLiteConnection.WALIndex.frameSize)
        let end = Self.header + (length - Self.header) / frameSize * frameSize
        let cut = unsafe methods.xTruncate(file, Self.header)
        guard cut == SQLITE_OK else { return cut }
        return unsafe mark.bytes.withUnsafeBytes { unsafe methods.xWrite(file, $0.baseAddress, Int32($0.count), end) }
    }

    /// Truncates what was written since the last sync, after an error that has ended the transaction.
    ///
    /// Otherwise frames of this transaction could remain behind the next, shorter one, and `WALExaminer` would take them
    /// for an acknowledged commit.
    ///
    /// - Returns: The error; if the file cannot be truncated, one that makes the writer close its connection.
    private func takeBack(after result: Int32) -> Int32 {
        guard let start = unsyncedStart else { return result }
        unsyncedStart = nil
        return unsafe file.pointee.pMethods.pointee.xTruncate(file, start) == SQLITE_OK ? result : CSQLITE_IOERR_WRITE
    }

    // MARK: - Length

    /// Bytes of the file.
    func size() throws(SQLiteError) -> Int {
        var size: sqlite3_int64 = 0
        try Self.check(unsafe file.pointee.pMethods.pointee.xFileSize(file, &size))
        return Int(size)
    }

    func cut(to size: Int) throws(SQLiteError) {
        try Self.check(truncate(to: sqlite3_int64(size)))
    }

    private static func check(_ code: Int32) throws(SQLiteError) {
        guard code == SQLITE_OK else {
            throw SQLiteError(code: code, message: unsafe String(cString: sqlite3_errstr(code)))
        }
    }

    // MARK: - Methods

    private static let methods = Methods()

    /// sqlite.org/c3ref/io_methods.html; version 1, as a WAL is neither mapped nor shared memory.
    @safe private struct Methods: @unchecked Sendable {
        // Unchecked: filled in here, only read afterwards, and never freed.
        let pointer: UnsafePointer<sqlite3_io_methods>

        init() {
            let methods = UnsafeMutablePointer<sqlite3_io_methods>.allocate(capacity: 1)
            unsafe methods.initialize(to: sqlite3_io_methods())
            unsafe methods.pointee.iVersion = 1
            unsafe methods.pointee.xClose = { memory in
                guard let buffer = unsafe unmanaged(memory)?.takeRetainedValue() else { return SQLITE_MISUSE }
                // Bytes that were not written until now belong to no commit.
                return unsafe buffer.file.pointee.pMethods.pointee.xClose(buffer.file)
            }
            unsafe methods.pointee.xRead = { memory, bytes, count, offset in
                unsafe afterFlush(memory) { unsafe $1.xRead($0, bytes, count, offset) }
            }
            unsafe methods.pointee.xWrite = { memory, bytes, count, offset in
                guard let buffer = unsafe buffer(memory) else { return SQLITE_MISUSE }
                return unsafe buffer.write(bytes, count, at: offset)
            }
            unsafe methods.pointee.xTruncate = { memory, size in
                unsafe buffer(memory)?.truncate(to: size) ?? SQLITE_MISUSE
            }
            unsafe methods.pointee.xSync = { memory, flags in
                unsafe buffer(memory)?.synchronize(flags) ?? SQLITE_MISUSE
            }
            unsafe methods.pointee.xFileSize = { memory, size in
                unsafe afterFlush(memory) { unsafe $1.xFileSize($0, size) }
            }
            // Nobody locks a WAL.
            unsafe (methods.pointee.xLock, methods.pointee.xUnlock) = ({ _, _ in SQLITE_OK }, { _, _ in SQLITE_OK })
            unsafe methods.pointee.xCheckReservedLock = { _, _ in SQLITE_MISUSE }
            unsafe methods.pointee.xFileControl = { memory, operation, argument in
                unsafe afterFlush(memory) { unsafe $1.xFileControl($0, operation, argument) }
            }
            unsafe methods.pointee.xSectorSize = { memory in
                guard let buffer = unsafe buffer(memory) else { return 0 }
                return unsafe buffer.file.pointee.pMethods.pointee.xSectorSize(buffer.file)
            }
            unsafe methods.pointee.xDeviceCharacteristics = { memory in
                guard let buffer = unsafe buffer(memory) else { return 0 }
                return unsafe buffer.file.pointee.pMethods.pointee.xDeviceCharacteristics(buffer.file)
            }
            unsafe pointer = UnsafePointer(methods)
        }
    }
}
