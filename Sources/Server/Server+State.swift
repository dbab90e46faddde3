package import Audit
import Dispatch
package import EventLoop
import FoundationEssentials
package import Logging
package import Settings
import Synchronization
package import System
import TokenService
import TokenStore

extension Server {
    /// Whether the server can answer requests and store tokens.
    package var readiness: ServiceReadiness {
        var reasons: [String] = []
        if isStopping { reasons.append("the server is stopping") }
        if let fault = store.fault {
            let isRead = if case .read = fault { true } else { false }
            reasons.append("tokens cannot be \(isRead ? "read" : "stored"): \(fault)")
        }
        if let auditFault { reasons.append(auditFault) }
        return ServiceReadiness(reasons: reasons)
    }

    /// Whether the server has begun to stop.
    package var isStopping: Bool { isDraining.load(ordering: .relaxed) }

    /// The addresses that clients connect to, for the log: `http://127.0.0.1:8080`, `unix:/run/http.sock`.
    package var listenerNames: [String] { listeners.all.map(\.name) }

    /// Nil without a TLS listener.
    package var tls: TLSContext? { listeners.tls }

    /// Warnings about settings with which strangers may read tokens, here or on their way through a network, or which take more
    /// memory than there is.
    package var settingsWarnings: [String] {
        var warnings: [String] = []
        let exposed = listeners.all.filter { !$0.listener.isLocal }.map(\.name)
        if settingsInForce.access.mode == .open && !exposed.isEmpty {
            let advice = "set access.mode, or let only clients that you trust reach it"
            warnings.append("\(AccessMode.openWarning(exposed)); \(advice)")
        }
        for listener in listeners.all where !listener.listener.isLocal && listener.tls == nil {
            warnings.append(
                """
                \(listener.name) accepts plain HTTP from other machines; \
                let only a proxy that speaks HTTPS reach it, over a network that you trust
                """
            )
        }
        if let (fault, advice) = settingsInForce.storeURL?.weakEncryption { warnings.append("\(fault); \(advice)") }
        if settingsInForce.https.mode == .off {
            warnings.append("https.mode is off: tokens are accepted and given over plain HTTP")
        }
        if let (fault, advice) = Self.memoryShortage(settingsInForce, limit: SystemMemory.bytes) {
            warnings.append("\(fault); \(advice)")
        }
        return warnings
    }
}

extension Server {
    /// What the program takes beside the cache and the buffers, in bytes.
    private static let ownMemory = 128 << 20

    /// What is wrong and what to do if the server may use less memory than its settings let it take; nil if it has enough.
    ///
    /// - Parameter limit: In bytes; 0 if unknown.
    package static func memoryShortage(_ settings: Settings, limit: Int) -> (fault: String, advice: String)? {
        // A store that others write to as well has no cache of answers.
        let needed = (settings.store.url.isEmpty ? settings.cacheLimit : 0) + settings.bufferLimit + ownMemory
        guard limit > 0, limit < needed else { return nil }
        return (
            "the system allows \(limit >> 20) MiB of memory, and the settings \(needed >> 20) MiB: under load the kernel may kill the server",
            "allow more memory (MemoryMax=, or resources.limits.memory of the pod), or lower limits.buffers and cache.max_bytes"
        )
    }
}

extension Server {
    private static let diskCheckInterval = Duration.seconds(10)

    /// How much room the data folder's file system had when it last answered; nil while the folder is missing.
    package var diskSpace: FileSystem.Space? { latestDiskSpace.withLock(\.self) }

    /// Looks from time to time how much room there is.
    ///
    /// It has a queue of its own, so that a file system that does not answer holds up nothing else.
    func watchDiskSpace() async {
        let queue = DispatchQueue(label: "disk space", qos: .utility)
        let path = settingsInForce.dataDirectoryPath
        while (try? await Task.sleep(for: Self.diskCheckInterval)) != nil {
            let space = await queue.run { FileSystem(of: path).space }
            latestDiskSpace.withLock { $0 = space }
        }
    }
}

extension Server {
    private static let storeCheckInterval = Duration.seconds(1)

    /// Whether the files of the store were removed, cut or replaced: the server then ends, and its next start examines them.
    package var hasLostStore: Bool { store.fault?.cause == .vanished }

    /// Stops the server once it has lost its store.
    func watchStore() async {
        while (try? await Task.sleep(for: Self.storeCheckInterval)) != nil, !isStopping {
            if hasLostStore { return drain("the files of the store are not as they were", by: .none) }
        }
    }
}

extension Server {
    private static let auditInterval = Duration.seconds(1)

    /// Opens the audit log, which records the start; nil if the settings name none.
    package static func openAuditLog(_ settings: Settings, _ logger: Logger) throws(StartError) -> AuditLog? {
        guard !settings.audit.file.isEmpty else { return nil }
        do throws(AuditError) {
            return try AuditLog(path: settings.audit.file, keyPath: settings.auditKeyPath) { notice in
                logger.log(level: notice.isAlarm ? .error : .notice, "\(notice)")
            }
        } catch {
            throw StartError("the audit log cannot be opened: \(error)")
        }
    }

    /// Replaces the audit log's key when it is due, retries writes that failed, and notices a disk that hangs.
    func keepUpAuditLog() async {
        guard let audit else { return }
        await withDiscardingTaskGroup { group in
            group.addTask {
                while (try? await Task.sleep(for: Self.auditInterval)) != nil { audit.checkProgress() }
            }
            group.addTask { [auditQueue] in
                while (try? await Task.sleep(for: Self.auditInterval)) != nil {
                    await auditQueue.run { audit.keepUp() }
                }
            }
        }
    }

    /// Why requests are refused because of the audit log; nil if they are not.
    var auditFault: String? {
        guard let audit, settingsInForce.audit.isRequired, audit.figures.isFailing else { return nil }
        return "the audit log cannot be written, and audit.required is on"
    }
}

extension Server {
    /// Fails if a start would fail because of the files of keys and logs; changes nothing.
    ///
    /// - Parameter isAwaited: Whether a file or its folder is made only when the service starts, so that it cannot be checked yet.
    /// - Returns: How the keys for JWTs are used; nil without any.
    @discardableResult
    package static func examineFiles(
        _ settings: Settings, except isAwaited: (String) -> Bool
    ) throws(StartError) -> String? {
        let summary = try AccessResources(settings).keySummary
        let path = settings.accessLogFile
        if settings.accessLog != .off && !path.isEmpty && !isAwaited(path) {
            do throws(SystemError) {
                try AccessLogFile.examine(path)
            } catch {
                throw .accessLog(path, error)
            }
        }
        guard !settings.audit.file.isEmpty, !isAwaited(settings.audit.file), !isAwaited(settings.auditKeyPath) else {
            return summary
        }
        do throws(AuditError) {
            // The server itself may have it open.
            try AuditLog.examine(path: settings.audit.file, keyPath: settings.auditKeyPath)
        } catch {
            throw StartError("the audit log cannot be opened: \(error)")
        }
        return summary
    }
}
