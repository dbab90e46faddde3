package import EventLoop
internal import FoundationEssentials
package import Settings
internal import Synchronization
internal import TokenService
internal import TokenStore

extension Server {
    /// Whether the server can answer requests and store tokens.
    package var readiness: ServiceReadiness {
        var reasons: [String] = []
        if isDraining.load(ordering: .relaxed) { reasons.append("the server is stopping") }
        if let fault = store.fault {
            let isRead = if case .read = fault { true } else { false }
            reasons.append("tokens cannot be \(isRead ? "read" : "stored"): \(fault)")
        }
        if let auditFault { reasons.append(auditFault) }
        return ServiceReadiness(reasons: reasons)
    }

    /// The settings in force, as of the last reload.
    package var settingsInForce: Settings { reloader.settings }

    package var lastReload: LastReload { reloader.lastReload }

    /// Where the settings in force come from.
    package var settingsSources: SettingsSources { reloader.settingsSources }

    /// Whether the server has begun to stop.
    package var isStopping: Bool { isDraining.load(ordering: .relaxed) }

    /// The addresses that clients connect to, for the log: `http://127.0.0.1:8080`, `unix:/run/http.sock`.
    package var listenerNames: [String] { listeners.all.map(\.name) }

    /// The listeners whose sockets systemd has passed, with what is spoken on them.
    package var passedListeners: [(name: String, isTLS: Bool, requiresProxyProtocol: Bool)] {
        listeners.all.filter(\.isPassed).map { ($0.name, $0.tls != nil, $0.requiresProxyProtocol) }
    }

    /// The number of requests by listener; listeners without a counter of their own are together under `others`.
    package var listenerRequests: [(name: String, count: UInt64)] {
        var names = listenerNames.prefix(ListenerCounts.limit).map(\.self)
        if listenerNames.count > ListenerCounts.limit { names.append("others") }
        return names.enumerated().map { number, name in (name, workers.sum { $0.listeners.value(of: number) }) }
    }

    /// Nil without a TLS listener.
    package var tls: TLSContext? { listeners.tls }

    /// Warnings about certificates that clients refuse now or within 14 days.
    package var certificateWarnings: [String] { reloader.certificateWarnings }

    /// Warnings about settings with which strangers may read tokens, here or on their way through a network.
    package var exposureWarnings: [String] {
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
        if let weakness = settingsInForce.storeURL?.weakEncryption(ProcessInfo.processInfo.environment) {
            warnings.append("\(weakness); \(weakness.advice)")
        }
        if settingsInForce.https.mode == .off {
            warnings.append("https.mode is off: tokens are accepted and given over plain HTTP")
        }
        return warnings
    }
}
