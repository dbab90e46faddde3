internal import CSQLite
internal import Glibc

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
            return unsafe standard.pointee.xOpen(standard, path, file, flags, outFlags)
        }
        return unsafe WALWriteBuffer.open(String(cString: path), in: file) {
            unsafe standard.pointee.xOpen(standard, path, $0, flags, outFlags)
        }
    }

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
