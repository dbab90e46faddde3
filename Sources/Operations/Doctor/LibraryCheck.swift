internal import EventLoop
internal import FoundationEssentials
internal import Glibc
internal import TokenStore

/// Reports the versions of token-cache, its libraries and the kernel, and what is known of old ones.
///
/// An old library is no warning: distributions fix the versions that they ship, and token-cache works around the defects that
/// concern it. Nothing would be left for an operator to do.
enum LibraryCheck {
    private static let topic = "Versions"

    static func findings(version: String) -> [Finding] {
        let kernel = (try? String(contentsOfFile: "/proc/sys/kernel/osrelease", encoding: .utf8)) ?? "unknown"
        return [
            .ok(topic, "token-cache \(version)"),
            openSSL(TLSContext.libraryVersion, now: Int64(time(nil))),
            .ok(topic, "Linux \(kernel.prefix { !$0.isNewline })"),
        ] + (StoreSelection.clientLibrary.map { [.ok(topic, $0)] } ?? [])
    }

    static func finding(_ store: StoreSoftware) -> Finding {
        let text = "\(store.name) \(store.version)"
        return .ok(topic, text, detail: store.defect.map { "\(text) has \($0.text); \($0.advice)" })
    }

    /// When the OpenSSL project's support for a series ends, in seconds since 1970
    /// (openssl-library.org/policies/releasestrat).
    private static let supportEnds: [String: (time: Int64, day: String)] = [
        "3.0": (1_788_739_200, "2026-09-07"), "3.1": (1_741_910_400, "2025-03-14"),
        "3.2": (1_763_856_000, "2025-11-23"), "3.3": (1_775_692_800, "2026-04-09"),
        "3.4": (1_792_627_200, "2026-10-22"), "3.5": (1_901_836_800, "2030-04-08"),
        "3.6": (1_793_491_200, "2026-11-01"),
    ]

    /// - Parameters:
    ///   - version: Such as `3.0.22`.
    ///   - now: Seconds since 1970.
    static func openSSL(_ version: String, now: Int64) -> Finding {
        let series = version.split(separator: ".").prefix(2).joined(separator: ".")
        guard let end = supportEnds[series], now >= end.time else { return .ok(topic, "OpenSSL \(version)") }
        return .ok(
            topic, "OpenSSL \(version)",
            detail: """
                the OpenSSL project has supported \(series) until \(end.day); a distribution that ships it still fixes it, \
                so install its updates
                """
        )
    }
}
