internal import Glibc

/// The writer's short wait after a group, for the next requests of the clients that the group has just answered.
///
/// A client with much to write sends its next request when it has its answer. Without the wait, those that have waited during
/// a commit would make the next group, and those that the commit has answered the one after it: two groups of half the size
/// that take turns at the disk, and each request would take two syncs. The wait is short beside a sync, so a request that comes
/// by chance hardly notices it.
struct GroupPause {
    /// Fewer changes than that are no load for which a larger group is worth a wait.
    private static let smallestGroup = 4
    /// The wait is this part of the time that the commit took.
    private static let divisor = 8
    private static let longest = Duration.milliseconds(5)
    /// A shorter wait would take longer than wanted, as the system wakes a thread some 50 microseconds late (timer slack,
    /// prctl(2)).
    private static let shortestSleep = Duration.microseconds(60)

    /// At most `longest`.
    let duration: Duration

    /// - Parameters:
    ///   - count: The changes of the group.
    ///   - time: What its commit took.
    /// - Returns: Nil if there is nothing to wait for.
    init?(afterGroupOf count: Int, took time: Duration) {
        guard count >= Self.smallestGroup else { return nil }
        duration = min(time / Self.divisor, Self.longest)
    }

    func wait() {
        if duration >= Self.shortestSleep {
            usleep(UInt32(duration / .microseconds(1)))
        } else {
            // Lets the loops send the answers first where they have no processor of their own.
            sched_yield()
        }
    }
}
