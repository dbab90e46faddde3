import Audit
package import EventLoop
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

    /// How much room the data folder's file system had when it last answered; nil while the folder is missing.
    package var diskSpace: FileSystem.Space? { latestDiskSpace.withLock(\.self) }

    /// Whether the files of the store were removed, cut or replaced: the server then ends, and its next start examines them.
    package var hasLostStore: Bool { store.fault?.cause == .vanished }

    /// Why requests are refused because of the audit log; nil if they are not.
    var auditFault: String? {
        guard let audit, settingsInForce.audit.isRequired, audit.figures.isFailing else { return nil }
        return "the audit log cannot be written, and audit.required is on"
    }

    /// Nil without a TLS listener.
    package var tls: WatchedCertificates? { listeners.tls }

    /// Warnings about settings with which strangers may read tokens, here or on their way through a network, or which take more
    /// memory than there is.
    package var settingsWarnings: [String] {
        var warnings = settingsInForce.warnings
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
