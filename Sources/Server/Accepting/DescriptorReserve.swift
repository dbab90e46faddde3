internal import Glibc

/// The last descriptors that the process may have, which connections must leave alone.
///
/// The access log's file, certificates and a database that has to be opened again need some at any time; and so does the
/// runtime: libdispatch looks after its threads in /proc, and ends the process when it has no descriptor for that. The
/// kernel gives out the lowest free number, so that a number tells how many are left.
package struct DescriptorReserve: Sendable {
    /// The first number that is not for connections.
    private let start: Int32

    /// - Parameters:
    ///   - limit: Of the process.
    ///   - acceptors: How many tasks accept at the same time; each may take one before it notices.
    init(limit: Int, acceptors: Int) {
        // A quarter of what is left: with very few there must be some for connections, too.
        let left = max(0, limit - Int(Self.next))
        start = Int32(clamping: limit - min(16 + acceptors, left / 4))
    }

    /// Whether a descriptor is one of the last.
    package func has(_ descriptor: Int32) -> Bool { descriptor >= start }

    /// Whether the next descriptor would be one of the last.
    var isNext: Bool { has(Self.next) }

    /// The number of the next descriptor; the highest there is when there is none.
    private static var next: Int32 {
        let number = unsafe open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard number >= 0 else { return .max }
        Glibc.close(number)
        return number
    }
}
