internal import CSQLite
internal import Glibc
internal import System

/// Has the system read all pages below an interior page of a B-tree as soon as a connection has read that page.
///
/// SQLite reads one page at a time. If the database is larger than the memory, a walk over all rows waits for the disk at
/// each leaf. The system reads ahead by itself only if the leaves are read in the order in which they lie in the file. That
/// is not so in a store that clients have filled, whose leaves lie in random order, nor in SQLite's integrity check, which
/// goes from a table's last row to its first. An interior page leads to about a hundred leaves, and a disk can read a
/// hundred pages that are requested together in little more time than it takes for one.
///
/// Used on its connection's thread. A connection may have only one; `SQLiteConnection.readsChildrenAhead` ensures that.
@safe final class ChildReadAhead {
    private let file: UnsafeMutablePointer<sqlite3_file>
    private let replaced: UnsafeMutablePointer<csqlite_replaced_methods>
    /// Asks for a range of the file's bytes.
    private let ask: (Range<Int>) -> Void
    /// While this is false, nothing is read ahead.
    var isActive = true

    /// Begins to read ahead; ends with the object's life, which must be before the connection's end.
    ///
    /// - Returns: Nil if it is unknown which descriptor the connection reads from.
    convenience init?(_ connection: SQLiteConnection) {
        // SQLite has no function that returns its descriptor. The file must not be opened a second time, because closing
        // that descriptor would release SQLite's locks on the file (sqlite.org/howtocorrupt.html, section 2.2).
        guard let descriptor = FileIdentity.find(connection.path)?.identity.openDescriptor else { return nil }
        self.init(connection) { range in
            // This is only a hint, so its errors are ignored. It does no harm either if SQLite has closed the descriptor
            // and its number now belongs to another file.
            _ = posix_fadvise(descriptor, range.lowerBound, range.count, POSIX_FADV_WILLNEED)
        }
    }

    /// The same, with another way to ask for a range of the file's bytes.
    init?(_ connection: SQLiteConnection, ask: @escaping (Range<Int>) -> Void) {
        guard let file = unsafe connection.file, let standard = unsafe file.pointee.pMethods else { return nil }
        unsafe self.file = unsafe file
        self.ask = ask
        unsafe replaced = .allocate(capacity: 1)
        unsafe replaced.initialize(
            to: csqlite_replaced_methods(methods: standard.pointee, standard: standard, owner: nil))
        // Unretained, because deinit restores the file's own methods: SQLite cannot call this object after its end.
        unsafe replaced.pointee.owner = Unmanaged.passUnretained(self).toOpaque()
        unsafe replaced.pointee.methods.xRead = { file, bytes, count, offset in
            guard let methods = unsafe file?.pointee.pMethods else { return SQLITE_MISUSE }
            let replaced = unsafe UnsafeRawPointer(methods).assumingMemoryBound(to: csqlite_replaced_methods.self)
            let result = unsafe replaced.pointee.standard.pointee.xRead(file, bytes, count, offset)
            guard result == SQLITE_OK, let bytes = unsafe bytes, let owner = unsafe replaced.pointee.owner else {
                return result
            }
            let page = unsafe Span(_unsafeStart: bytes.assumingMemoryBound(to: UInt8.self), count: Int(count))
            unsafe Unmanaged<ChildReadAhead>.fromOpaque(owner).takeUnretainedValue().askForChildren(
                of: page, at: Int(offset))
            return result
        }
        unsafe file.pointee.pMethods = UnsafeRawPointer(replaced).assumingMemoryBound(to: sqlite3_io_methods.self)
    }

    deinit {
        unsafe file.pointee.pMethods = unsafe replaced.pointee.standard
        unsafe replaced.deallocate()
    }

    private func askForChildren(of page: Span<UInt8>, at offset: Int) {
        guard isActive else { return }
        let size = page.count
        // SQLite also reads parts of the database's header, which are no pages.
        guard size >= PageSize.least, offset % size == 0 else { return }
        guard let page = InteriorPage(page, number: offset / size + 1) else { return }
        for run in page.runs { ask((run.lowerBound - 1) * size..<(run.upperBound - 1) * size) }
    }
}
