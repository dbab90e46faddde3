internal import CLinux
internal import Glibc

/// A resource limit of this process (getrlimit(2)).
struct ResourceLimit {
    private let resource: __rlimit_resource_t

    /// How many descriptors may be open.
    static let descriptors = ResourceLimit(RLIMIT_NOFILE)
    /// The size of core dumps.
    static let coreDump = ResourceLimit(RLIMIT_CORE)

    private init(_ resource: __rlimit_resource) {
        self.resource = __rlimit_resource_t(resource.rawValue)
    }

    /// Nil if they cannot be read.
    var values: (soft: UInt64, hard: UInt64)? {
        var limit = rlimit()
        guard unsafe getrlimit(resource, &limit) == 0 else { return nil }
        return (UInt64(limit.rlim_cur), UInt64(limit.rlim_max))
    }

    /// Does nothing if that is not allowed.
    func set(soft: UInt64, hard: UInt64) {
        var limit = rlimit(rlim_cur: rlim_t(soft), rlim_max: rlim_t(hard))
        _ = unsafe setrlimit(resource, &limit)
    }
}

/// How many descriptors this process may have open.
package enum DescriptorLimit {
    /// The soft limit, which is the one in force; 0 if unknown.
    package static var current: Int { Int(clamping: ResourceLimit.descriptors.values?.soft ?? 0) }

    /// Raises the soft limit to the hard one, if that is allowed.
    package static func raise() {
        guard let hard = ResourceLimit.descriptors.values?.hard else { return }
        ResourceLimit.descriptors.set(soft: hard, hard: hard)
    }

    /// How many are free, if there are no gaps among the numbers of the open ones: the kernel assigns the lowest free number.
    package static func free() throws(SystemError) -> Int {
        max(0, current - Int(try FileDescriptor(opening: "/", O_RDONLY | O_DIRECTORY).number))
    }
}

/// Core dumps of this process, which would contain keys and tokens.
package enum CoreDumps {
    package static func turnOff() {
        ResourceLimit.coreDump.set(soft: 0, hard: 0)
        // The limit does not apply to dumps that are piped to a program such as systemd-coredump (core(5)). This does, and
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
