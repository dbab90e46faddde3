import Audit
import Dispatch
import EventLoop
import Logging
import Settings
import Synchronization
import System
import TokenService
import TokenStore

/// What the server does from time to time while it runs, each in a task of its own.
extension Server {
    /// Calls a closure after each pause, until the task is cancelled.
    static func repeatedly(after pause: Duration, _ act: () async -> Void) async {
        while (try? await Task.sleep(for: pause)) != nil { await act() }
    }

    /// Looks how much room there is on the disk.
    ///
    /// It has a queue of its own, so that a file system that does not answer holds up nothing else.
    func watchDiskSpace() async {
        let queue = DispatchQueue(label: "disk space", qos: .utility)
        let path = settingsInForce.dataDirectoryPath
        await Self.repeatedly(after: .seconds(10)) {
            let space = await queue.run { FileSystem(of: path).space }
            latestDiskSpace.withLock { $0 = space }
        }
    }

    /// Stops the server once it has lost its store.
    func watchStore() async {
        await Self.repeatedly(after: .seconds(1)) {
            if hasLostStore { drain("the files of the store are not as they were", by: .none) }
        }
    }

    /// Replaces the audit log's key when it is due, retries what failed, and notices a disk that hangs.
    func keepUpAuditLog() async {
        guard let audit else { return }
        async let progress: Void = Self.repeatedly(after: .seconds(1)) { audit.checkProgress() }
        await Self.repeatedly(after: .seconds(1)) {
            await auditQueue.run { [self] in
                audit.keepUp()
                // A rotation may have failed because the disk was full. logrotate then skips the empty file that is left, and never sends
                // SIGHUP again.
                guard reloadRecord.withLock(\.auditFault) != nil, (try? audit.reopen()) != nil else { return }
                reloadRecord.withLock { $0.auditFault = nil }
                logger.notice("the audit log is continued in a new file, which had failed before")
            }
        }
        await progress
    }

    /// Removes the tokens of those who have left the app at Facebook.
    func carryOutDepartures() async {
        guard access.appSecret != nil else { return }
        await access.departures.run(on: store.administrator) { [audit, logger] user, isErased, error in
            if let error {
                logger.error("the token of somebody who has left the app at Facebook stays for now: \(error)")
            }
            let event = AuditEvent(
                isErased ? .erase : .remove, error == nil ? .ok : .failed, by: .facebook,
                user: audit?.makeHasher().pseudonym(.user, of: user.span))
            audit?.submit([event], isRetried: true)
        }
    }

    func trimHeap() async {
        var heapMemory = heapMemory
        await Self.repeatedly(after: .seconds(10)) { heapMemory.giveBackFree() }
    }

    func notifyWatchdog() async {
        guard let watchdogInterval else { return }
        await Watchdog(loops: loops, interval: watchdogInterval) { [notifier] in notifier.send(.watchdog) }.run()
    }
}
