import Synchronization

/// Shows whether the store may have changed since it was read.
///
/// What may change belongs to one of 4,096 groups by its hash. Each group has a version, which grows when a change begins and when it
/// ends. So nobody has to search for what a change concerns: all that was read of its group is read once more.
///
/// Any thread.
struct ChangeVersions: ~Copyable, Sendable {
    /// The version of a group, taken before the store is read.
    struct Ticket: Sendable {
        let hash: Int
        fileprivate let version: UInt64
    }

    private static let groupCount = 4096
    /// The lowest bits count the changes under way, the others are the version.
    private static let oneVersion: UInt64 = 1 << 20
    private static let underWay: UInt64 = oneVersion - 1

    private let groups = InlineArray<4096, Atomic<UInt64>> { _ in Atomic(0) }

    private static func group(of hash: Int) -> Int { hash & (groupCount - 1) }

    func ticket(for hash: Int) -> Ticket {
        Ticket(hash: hash, version: groups[Self.group(of: hash)].load(ordering: .acquiring))
    }

    /// Whether no change of the ticket's group was under way when the ticket was taken, and none has begun since.
    func isCurrent(_ ticket: Ticket) -> Bool {
        ticket.version & Self.underWay == 0
            && groups[Self.group(of: ticket.hash)].load(ordering: .acquiring) == ticket.version
    }

    /// A change is about to be committed.
    func begin(_ hash: Int) {
        groups[Self.group(of: hash)].add(Self.oneVersion + 1, ordering: .acquiringAndReleasing)
    }

    /// The change that `begin` announced is over, with or without success.
    func end(_ hash: Int) {
        groups[Self.group(of: hash)].add(Self.oneVersion - 1, ordering: .acquiringAndReleasing)
    }

    /// Anything may have changed.
    func changeEverything() {
        for group in 0..<Self.groupCount { groups[group].add(Self.oneVersion, ordering: .acquiringAndReleasing) }
    }
}
