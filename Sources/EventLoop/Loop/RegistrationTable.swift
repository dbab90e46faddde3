/// A loop's registrations, by descriptor.
///
/// Allocates its own memory: Swift guards every change of an array in a class against overlapping accesses at run time, and a
/// request changes its row several times. Here accesses cannot overlap, as code that changes a row calls nothing outside it.
///
/// Belongs to its loop's thread.
@safe final class RegistrationTable {
    /// All rows are initialized.
    private var rows: UnsafeMutableBufferPointer<Registration>

    init() {
        unsafe rows = UnsafeMutableBufferPointer(start: nil, count: 0)
    }

    deinit {
        unsafe rows.deinitialize().deallocate()
    }

    var indices: Range<Int> { unsafe rows.indices }

    subscript(row: Int) -> Registration {
        @inline(__always) _read {
            precondition(indices.contains(row), "a row of the table")
            yield unsafe rows[row]
        }
        @inline(__always) _modify {
            precondition(indices.contains(row), "a row of the table")
            yield unsafe &rows[row]
        }
    }

    /// Grows the table up to a row; must not be called while a row is being changed.
    func reach(_ row: Int) {
        guard row >= indices.count else { return }
        let larger = unsafe UnsafeMutableBufferPointer<Registration>
            .allocate(capacity: max(64, row + 1, 2 * rows.count))
        let moved = unsafe larger.moveInitialize(fromContentsOf: rows)
        unsafe larger[moved...].initialize(repeating: Registration())
        unsafe rows.deallocate()
        unsafe rows = larger
    }
}
