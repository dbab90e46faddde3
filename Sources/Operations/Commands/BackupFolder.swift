import FoundationEssentials
import Glibc
import System
package import TokenStore

/// A folder of backups that are named by their time, such as `tokens-20261123T071500Z.db`; locked against other processes that
/// back up into it.
///
/// Files with other names, and files that are no backups, are never touched.
package struct BackupFolder: ~Copyable {
    let path: String
    private let store: any FileStoreProvider
    /// The open folder; the lock lasts as long as it is open.
    private let descriptor: FileDescriptor

    /// Locks the folder.
    ///
    /// - Parameter store: Tells backups from other files.
    init(_ path: String, _ store: any FileStoreProvider) throws(CommandFailure) {
        descriptor = try Self.locked(path)
        self.path = path
        self.store = store
    }

    private static func locked(_ path: String) throws(CommandFailure) -> FileDescriptor {
        let descriptor: FileDescriptor
        do {
            descriptor = try FileDescriptor(opening: path, O_RDONLY | O_DIRECTORY)
        } catch {
            throw CommandFailure(
                error.code == ENOENT
                    ? "there is no folder \(path); make it, so that the server's user can write in it"
                    : "the folder \(path) cannot be opened: \(error.reason)"
            )
        }
        // A folder that cannot be locked, as on some network file systems, is used all the same.
        guard flock(descriptor.number, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK else {
            throw CommandFailure("another process is backing up into \(path); try again when it is done")
        }
        return descriptor
    }

    /// Where a backup is until it is verified; one that could not be verified stays here until the next backup.
    package var unverified: String { path + "/unverified.db" }

    /// Removes what an earlier backup has left there, which frees its disk space.
    package func removeUnverified() throws {
        guard FileStatus(unverified, followingLinks: false) != nil else { return }
        guard store.isBackup(unverified) else {
            throw CommandFailure("\(unverified) is there and is no backup; remove it first")
        }
        try PrivateFile.remove(unverified)
    }

    /// Gives the verified backup its name, durably.
    ///
    /// - Returns: Its time, in seconds since 1970, and its path.
    package func accept() throws -> (time: Int64, path: String) {
        var now = Int64(Glibc.time(nil))
        // Another backup of the same second may have the name already.
        while FileStatus(path(of: now), followingLinks: false) != nil {
            sleep(1)
            now = max(now + 1, Int64(Glibc.time(nil)))
        }
        let target = path(of: now)
        try PrivateFile.rename(unverified, to: target)
        return (now, target)
    }

    /// Removes the backups that a rule does not keep; if one cannot be removed, goes on with the others.
    ///
    /// - Returns: The paths of the removed ones, the earliest first, and why another one could not be removed.
    package func removeSuperfluous(
        _ retention: BackupRetention, newest: Int64
    ) -> (removed: [String], failure: StoreError?) {
        var removed: [String] = []
        var failure: StoreError?
        for time in retention.superfluous(of: times, newest: newest).sorted() {
            do {
                try PrivateFile.remove(path(of: time))
                removed.append(path(of: time))
            } catch {
                failure = error
            }
        }
        return (removed, failure)
    }

    /// The times of the backups that are here.
    private var times: [Int64] {
        var times: [Int64] = []
        for case let time? in (Folder.names(in: path) ?? []).map(Self.time(named:)) {
            let path = path(of: time)
            guard FileStatus(path, followingLinks: false)?.isFile == true, store.isBackup(path) else { continue }
            times.append(time)
        }
        return times
    }

    private func path(of time: Int64) -> String {
        path + "/" + Self.name(at: time)
    }

    // MARK: - Names

    private static let (prefix, suffix) = ("tokens-", ".db")
    private static let style = Date.ISO8601FormatStyle(dateSeparator: .omitted, timeSeparator: .omitted)

    static func name(at time: Int64) -> String {
        prefix + Date(timeIntervalSince1970: TimeInterval(time)).formatted(style) + suffix
    }

    /// The time of a name that was made here; nil for any other name.
    static func time(named name: String) -> Int64? {
        guard name.hasPrefix(prefix), name.hasSuffix(suffix) else { return nil }
        guard let date = try? style.parse(String(name.dropFirst(prefix.count).dropLast(suffix.count))) else {
            return nil
        }
        let time = Int64(date.timeIntervalSince1970)
        // A calendar also accepts other spellings of the same time; those are not names made here.
        return Self.name(at: time) == name ? time : nil
    }
}
