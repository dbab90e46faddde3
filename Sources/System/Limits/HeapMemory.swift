internal import CLinux

/// Returns the C library's unused heap memory to the system.
///
/// After a burst of large requests the library would otherwise keep that memory as free blocks of all sizes.
package struct HeapMemory {
    /// Blocks of at least this many bytes get a mapping of their own, which returns to the system when they are freed.
    private static let mappedBlock: Int32 = 256 << 10
    /// How many free bytes at the end of a heap are kept for later allocations.
    private static let keptEnd: Int32 = 4 << 20
    /// How many bytes must have become free since the last trim to make another one worthwhile.
    private static let worthwhile = 16 << 20

    /// The lowest number of free bytes in the heaps since the last trim.
    private var knownFree = 0

    /// Sets the sizes above for the whole process; call it before other threads run.
    package init() {
        clinux_set_heap(Self.mappedBlock, Self.keptEnd)
    }

    /// Returns free memory to the system if much has become free since the last trim; a trim takes some milliseconds.
    package mutating func giveBackFree() {
        let free = Int(clinux_free_heap_bytes())
        knownFree = min(knownFree, free)
        guard free - knownFree > Self.worthwhile else { return }
        clinux_trim_heap()
        // The C library still counts returned memory as free.
        knownFree = Int(clinux_free_heap_bytes())
    }
}
