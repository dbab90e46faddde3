#if PostgreSQL
internal import Synchronization
internal import System

/// Remembers which faults were told of, so that one is told of when it begins, and again when it comes back.
final class OnceEach: Sendable {
    /// When each was seen last.
    private let seen = Mutex<[String: MonotonicTime]>([:])
    private let absence: Nanoseconds
    private static let limit = 100

    /// - Parameter absence: How long a fault has to be unseen to count as one that comes back; longer than the time between
    ///   two looks.
    init(absence: Duration = .seconds(60)) {
        self.absence = Nanoseconds(absence)
    }

    /// Whether a fault, which is there now, has to be told of; called at each look.
    func isNew(_ text: String, at now: MonotonicTime = .now) -> Bool {
        seen.withLock { seen in
            seen = seen.filter { (now - $1).count < absence.count }
            guard seen[text] != nil || seen.count < Self.limit else { return false }
            return seen.updateValue(now, forKey: text) == nil
        }
    }
}
#endif
