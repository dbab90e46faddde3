import CLinux
import Glibc

/// How many descriptors this process may have open.
package enum DescriptorLimit {
    private static let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)

    /// The soft limit, which is the one in force; 0 if unknown.
    package static var current: Int { Int(clamping: limit.rlim_cur) }

    private static var limit: rlimit {
        var limit = rlimit()
        _ = unsafe getrlimit(resource, &limit)
        return limit
    }

    /// Raises the soft limit to the hard one, if that is allowed.
    package static func raise() {
        var limit = limit
        guard limit.rlim_max > 0 else { return }
        limit.rlim_cur = limit.rlim_max
        _ = unsafe setrlimit(resource, &limit)
    }

    /// How many are free, if there are no gaps among the numbers of the open ones: the kernel assigns the lowest free number.
    package static func free() throws(SystemError) -> Int {
        max(0, current - Int(try FileDescriptor(opening: "/", O_RDONLY | O_DIRECTORY).number))
    }
}

/// Core dumps of this process, which would contain keys and tokens.
package enum CoreDumps {
    package static func turnOff() {
        // Unlike the limit of their size, this applies to dumps that are piped to a program such as systemd-coredump (core(5)), and
        // keeps other processes of the same user from reading our memory (prctl(2), PR_SET_DUMPABLE).
        _ = clinux_set_dumpable(0)
    }
}

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
