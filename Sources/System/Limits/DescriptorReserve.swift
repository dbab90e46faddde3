internal import Glibc

/// The last descriptors below the process's limit, which are kept free of client connections.
///
/// The access log, certificates and a database that is opened again need descriptors at any time. So does the runtime:
/// libdispatch reads about its threads in /proc, and ends the process when it has no descriptor for that. The kernel
/// assigns the lowest free number, so the number of a descriptor shows how many are left.
package struct DescriptorReserve: Sendable {
    /// The lowest number in the reserve.
    private let start: Int32

    /// - Parameters:
    ///   - limit: The process's limit of open descriptors.
    ///   - acceptors: How many tasks accept at the same time; each may take one descriptor of the reserve before it stops.
    package init(limit: Int, acceptors: Int) {
        // At most a quarter of the free descriptors: under a very low limit, connections need some too.
        let free = max(0, limit - Int(Self.next))
        start = Int32(clamping: limit - min(16 + acceptors, free / 4))
    }

    /// Whether a descriptor belongs to the reserve.
    package func contains(_ descriptor: Int32) -> Bool { descriptor >= start }

    /// Whether the next descriptor that the process opens would belong to the reserve.
    package var isReached: Bool { contains(Self.next) }

    /// The number that the next descriptor will have; `Int32.max` when none is free.
    private static var next: Int32 {
        (try? FileDescriptor(opening: "/", O_RDONLY | O_DIRECTORY))?.number ?? .max
    }
}
