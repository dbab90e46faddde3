/// A loop's registrations, by descriptor.
///
/// In memory of its own: every change of an array in a class is guarded against overlapping ones at run time, and a request
/// changes its row several times. Here none can overlap, for what changes a row calls nothing outside it.
///
/// Belongs to its loop's thread.
@safe final class RegistrationTable {
    /// All initialized.
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

    /// Has the table reach up to a row; not while another one is being changed.
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
