#if PostgreSQL
internal import Synchronization

/// Remembers which texts were said, so that none is said twice.
final class OnceEach: Sendable {
    private let said = Mutex<Set<String>>([])

    /// Whether a text was not asked about before; false once there are a hundred.
    func isNew(_ text: String) -> Bool {
        said.withLock { $0.count < 100 && $0.insert(text).inserted }
    }
}
#endif
