#if PostgreSQL
internal import Synchronization

/// Servers that were used, and must not be any more, as their settings have changed: what they acknowledge may be lost.
///
/// Any thread.
final class RefusedServers: Sendable {
    private struct Contents {
        var reasons: [ServerIdentity: String] = [:]
        var watchers: [@Sendable () -> Void] = []
    }

    private let contents = Mutex(Contents())

    /// Has a function called, on any thread, whenever a server is found that must not be used.
    func watch(_ watcher: @escaping @Sendable () -> Void) {
        contents.withLock { $0.watchers.append(watcher) }
    }

    /// Why a server must not be used; nil if it may.
    func reason(_ server: ServerIdentity) -> String? {
        contents.withLock { $0.reasons[server] }
    }

    /// A server has told its settings.
    ///
    /// - Parameter reason: Why it must not be used; nil if it may.
    func note(_ server: ServerIdentity, _ reason: String?) {
        let watchers = contents.withLock { contents in
            contents.reasons[server] = reason
            // Each time, as a connection may have been made just before the settings were changed.
            return reason == nil ? [] : contents.watchers
        }
        for watcher in watchers { watcher() }
    }
}
#endif
