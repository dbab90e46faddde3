package import HTTP
package import TokenService

/// An entry of `trusted_proxies`: an address, a block of addresses, or `unix` for the clients of Unix sockets.
package enum TrustedProxy: Hashable, Sendable, CustomStringConvertible {
    case addresses(AddressRange)
    case unixSockets

    /// Reads an entry; nil if the text is none.
    package init?(_ text: String) {
        if text == "unix" {
            self = .unixSockets
        } else if let range = AddressRange(text) {
            self = .addresses(range)
        } else {
            return nil
        }
    }

    package var description: String {
        switch self {
        case .addresses(let range): "\(range)"
        case .unixSockets: "unix"
        }
    }
}

extension HTTPSPolicy {
    /// The policy of the settings.
    package init(_ settings: Settings) {
        var ranges: [AddressRange] = []
        for case .addresses(let range) in settings.trustedProxies { ranges.append(range) }
        self.init(
            mode: settings.https.mode,
            trusted: TrustedProxies(
                ranges: ranges, includesUnixSockets: settings.trustedProxies.contains(.unixSockets)
            ),
            publicHost: settings.https.publicHost
        )
    }
}
