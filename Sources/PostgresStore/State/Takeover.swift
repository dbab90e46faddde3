#if PostgreSQL
internal import System

/// Another server has become the primary; as text, what operators are told of that.
struct Takeover: Hashable, Sendable, CustomStringConvertible {
    /// The present primary, such as `PostgreSQL 15.18 at db2:5432 (timeline 2)`.
    let present: String
    let former: ServerIdentity
    /// From the beginning of the search to the moment at which the server was seen to be a primary.
    let untilSeen: Nanoseconds
    /// From the beginning of the search to the first connection that could be used: until then the one before might have
    /// been the primary, or commits did not return.
    let untilUsed: Nanoseconds

    var description: String {
        """
        \(present) is the primary now in the place of \(former.address) (timeline \(former.timeline)); it was found to be \
        writable \(Self.text(untilSeen)) after the search had begun, and could be used after \(Self.text(untilUsed))
        """
    }

    private static func text(_ time: Nanoseconds) -> String {
        let hundredths = (time.count + 5_000_000) / 10_000_000
        let rest = hundredths % 100
        return "\(hundredths / 100).\(rest < 10 ? "0" : "")\(rest) s"
    }
}
#endif
