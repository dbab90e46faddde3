internal import Dispatch
internal import Synchronization
package import System

/// Finds out from time to time how much room the data folder's file system has.
///
/// On a queue of its own: a file system that does not answer holds up this queue and nothing else. The figures are then those
/// of its last answer.
///
/// Any thread.
package final class DiskSpaceWatch: Sendable {
    private let path: String
    private let latest: Mutex<FileSystem.Space?>
    private let queue = DispatchQueue(label: "disk space", qos: .utility)
    private static let interval = DispatchTimeInterval.seconds(10)

    /// Looks for the first time.
    ///
    /// - Parameter path: The folder.
    init(_ path: String) {
        self.path = path
        latest = Mutex(FileSystem(of: path).space)
        lookLater()
    }

    /// The result of the last check; nil while the folder is missing.
    package var space: FileSystem.Space? { latest.withLock(\.self) }

    private func lookLater() {
        queue.asyncAfter(deadline: .now() + Self.interval) { [weak self] in
            guard let self else { return }
            let space = FileSystem(of: path).space
            latest.withLock { $0 = space }
            lookLater()
        }
    }
}
