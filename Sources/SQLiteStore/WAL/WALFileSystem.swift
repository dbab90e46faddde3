internal import CSQLite
internal import Glibc

/// SQLite's way to the files of the store's database (sqlite.org/vfs.html): its `unix-excl`, but that a commit's frames go
/// to the WAL in one call.
///
/// `unix-excl` keeps the WAL's index in this process's own memory, where all connections of the process share it, and locks
/// the database against other processes for as long as one of them has it open. With the default one the index is a file
/// (`tokens.db-shm`) mapped into memory: whoever cut that file to nothing ended the server with a SIGBUS, and each read
/// transaction took two system calls for its lock.
///
/// SQLite writes each frame's head and page by themselves, some hundred calls for a group. `WALWriteBuffer` gathers them until
/// they are asked for: at the latest when the WAL is synced, which every commit does before a reader can see it.
enum WALFileSystem {
    /// What `sqlite3_open_v2` takes; nil when SQLite has no `unix-excl` or does not accept ours.
    static let name: String? = unsafe register("token-cache", make) ? "token-cache" : nil

    /// The same for readers, which must not create a missing WAL: the writer would go on with the one it has open.
    static let readerName: String? = unsafe register("token-cache-reader", find) ? "token-cache-reader" : nil

    private typealias Opening =
        @convention(c) (
            UnsafeMutablePointer<sqlite3_vfs>?, sqlite3_filename?, UnsafeMutablePointer<sqlite3_file>?, Int32,
            UnsafeMutablePointer<Int32>?
        ) -> Int32

    private static let make: Opening = { unsafe open($0, $1, $2, $3, $4) }

    private static let find: Opening = { own, path, file, flags, outFlags in
        unsafe open(own, path, file, flags & SQLITE_OPEN_WAL != 0 ? flags & ~SQLITE_OPEN_CREATE : flags, outFlags)
    }

    private static func open(
        _ own: UnsafeMutablePointer<sqlite3_vfs>?, _ path: UnsafePointer<CChar>?,
        _ file: UnsafeMutablePointer<sqlite3_file>?, _ flags: Int32, _ outFlags: UnsafeMutablePointer<Int32>?
    ) -> Int32 {
        guard let own = unsafe own, let file = unsafe file else { return SQLITE_MISUSE }
        let standard = unsafe own.pointee.pAppData.assumingMemoryBound(to: sqlite3_vfs.self)
        guard flags & SQLITE_OPEN_WAL != 0, let path = unsafe path else {
            return unsafe standard.pointee.xOpen(standard, path, file, flags, outFlags)
        }
        return unsafe WALWriteBuffer.open(String(cString: path), in: file) {
            unsafe standard.pointee.xOpen(standard, path, $0, flags, outFlags)
        }
    }

    private static func register(_ ownName: String, _ opening: Opening) -> Bool {
        guard let standard = unsafe sqlite3_vfs_find("unix-excl") else { return false }
        // Both live as long as the process, as SQLite keeps pointers to them.
        let own = UnsafeMutablePointer<sqlite3_vfs>.allocate(capacity: 1)
        unsafe own.initialize(to: standard.pointee)
        unsafe own.pointee.zName = UnsafePointer(ownName.withCString { unsafe strdup($0) })
        unsafe own.pointee.szOsFile += Int32(WALWriteBuffer.headLength)
        unsafe own.pointee.pNext = nil
        unsafe own.pointee.pAppData = UnsafeMutableRawPointer(standard)
        unsafe own.pointee.xOpen = unsafe opening
        return unsafe sqlite3_vfs_register(own, 0) == SQLITE_OK
    }
}
