internal import Glibc

/// The last descriptors that the process may have, which connections must leave alone.
///
/// The access log, certificates and a database that is opened again need descriptors at any time; and so does the
/// runtime: libdispatch looks after its threads in /proc, and ends the process when it has no descriptor for that. The
/// kernel gives out the lowest free number, so that a number tells how many are left.
package struct DescriptorReserve: Sendable {
    /// The first number that is not for connections.
    private let start: Int32

    /// - Parameters:
    ///   - limit: The process's limit of open descriptors.
    ///   - acceptors: How many tasks accept at the same time; each may take one before it notices.
    package init(limit: Int, acceptors: Int) {
        // A quarter of what is left: even with very few descriptors some must be left for connections.
        let left = max(0, limit - Int(Self.next))
        start = Int32(clamping: limit - min(16 + acceptors, left / 4))
    }

    /// Whether a descriptor is in the reserve.
    package func has(_ descriptor: Int32) -> Bool { descriptor >= start }

    /// Whether the next descriptor would be in the reserve.
    package var isNext: Bool { has(Self.next) }

    /// The number of the next descriptor; the highest number if there is none left.
    private static var next: Int32 {
        (try? FileDescriptor(opening: "/", O_RDONLY | O_DIRECTORY))?.number ?? .max
    }
}
