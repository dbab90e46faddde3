internal import CLinux

/// Has the C library give memory that is no longer used back to the system.
///
/// After a moment with many large requests it would otherwise keep all of it, spread over free pieces of all sizes.
package struct HeapMemory {
    /// Blocks from this size on are the system's own mappings, which go back to it when they are freed.
    private static let mappedBlock: Int32 = 256 << 10
    /// Free bytes at the end of a heap that are kept for what comes next.
    private static let keptEnd: Int32 = 4 << 20
    /// Bytes that have to have become free since the last time to look through all heaps for them.
    private static let worthwhile = 16 << 20

    /// Free bytes in the heaps after the last time, or fewer if there were fewer since.
    private var knownFree = 0

    /// Sets the sizes above, for the whole process; before there are threads.
    package init() {
        clinux_set_heap(Self.mappedBlock, Self.keptEnd)
    }

    /// Gives free memory back if there is much more of it than before; takes some milliseconds then.
    package mutating func giveBackFree() {
        let free = Int(clinux_free_heap_bytes())
        knownFree = min(knownFree, free)
        guard free - knownFree > Self.worthwhile else { return }
        clinux_trim_heap()
        // What has gone back still counts as free.
        knownFree = Int(clinux_free_heap_bytes())
    }
}
