internal import HTTP
internal import Logging
internal import TokenService
internal import TokenStore

/// One setting: its key, what it may hold, and how its text becomes part of `Settings`.
///
/// The one list below makes the configuration file's keys, the environment's names and the checks of both.
package struct Setting: Sendable {
    /// As in the file, sections separated by dots: `limits.body`.
    package let key: String
    /// Whether it takes several values.
    let isList: Bool
    /// What is allowed, to be read after "allowed is".
    let allowed: String
    /// Puts the values into the settings; false when they are not allowed.
    ///
    /// Not a list: exactly one value.
    let apply: @Sendable (_ values: [String], _ settings: inout Settings) -> Bool
    /// The value in effect, as the file would have it.
    package let show: @Sendable (Settings) -> String

    /// The environment variable of the setting: `limits.body` is `TOKEN_CACHE_LIMITS_BODY`.
    var environmentName: String {
        "TOKEN_CACHE_" + key.uppercased().map { $0 == "." ? "_" : String($0) }.joined()
    }

    package static let all: [Setting] = [
        list("listen", ListenAddress.allowed, \.listen, ListenAddress.init, \.description),
        Setting(
            key: "admin.listen", isList: true, allowed: "addresses with a port, such as 127.0.0.1:9090, or off",
            apply: { values, settings in
                let isOff = values.isEmpty || values == ["off"] || values == ["false"]
                let parsed = isOff ? [] : values.compactMap(ListenAddress.init).filter(\.isPlain)
                settings.admin.listen = parsed
                return isOff || parsed.count == values.count
            },
            show: { $0.admin.listen.isEmpty ? "off" : flow($0.admin.listen.map(\.description)) }
        ),
        Setting(
            key: "admin.hosts", isList: true,
            allowed: "names of hosts without a port, such as token-cache.example.net, or an empty list",
            apply: { values, settings in
                let names = values == [""] ? [] : values
                settings.admin.hosts = names
                return names.allSatisfy { name in
                    let bytes = Array(name.utf8)
                    return !name.contains(":") && bytes.span.isAuthority(ByteRange(0, bytes.count))
                }
            },
            show: { flow($0.admin.hosts) }
        ),
        Setting(
            key: "data_directory", isList: false, allowed: "the path of a folder",
            apply: { values, settings in
                guard !values[0].isEmpty else { return false }
                settings.dataDirectory = values[0]
                return true
            },
            show: { quoted($0.dataDirectory) }
        ),
        choice("sealing.enabled", \.sealing.isEnabled),
        Setting(
            key: "sealing.key_ring", isList: false, allowed: "the path of a key ring's file, or empty",
            apply: { values, settings in
                settings.sealing.keyRing = values[0]
                return true
            },
            show: { quoted($0.sealing.keyRing) }
        ),
        orOff(
            "store.max_tokens", \.store.tokenLimit, "a number of at least 1",
            { $0.hasPrefix("+") ? nil : Int($0).flatMap { $0 >= 1 ? $0 : nil } }, { "\($0)" }
        ),
        orOff(
            "store.max_bytes", \.store.byteLimit, "a size of at least 1 MiB, such as 512 MiB or 2 GiB",
            { Quantities.bytes($0).flatMap { $0 >= 1 << 20 ? $0 : nil } }, Quantities.text(bytes:)
        ),
        choice("store.preload", \.store.isPreloaded),
        choice("store.accept_damaged_wal", \.store.acceptsDamagedLog),
        size("store.queue.max_bytes", \.store.queueLimit, 1 << 20, 64 << 30),
        duration("store.queue.max_wait", \.store.queueTime, .milliseconds(100), .seconds(3_600)),
        size("cache.max_bytes", \.cacheLimit, 0, 64 << 30),
        orOff(
            "retention.after_written", \.retention.sinceWritten, "a time of at least 1s, such as 90d",
            { Quantities.duration($0).flatMap { $0 >= .seconds(1) ? $0 : nil } }, Quantities.text(_:)
        ),
        orOff(
            "retention.after_expired", \.retention.sinceExpired, "a time of at least 0s, such as 7d",
            Quantities.duration, Quantities.text(_:)
        ),
        Setting(
            key: "loops", isList: false, allowed: "auto, or a number from 1 to 256",
            apply: { values, settings in
                settings.loops = Int(values[0])
                return values[0] == "auto" || (1...256).contains(settings.loops ?? 0)
            },
            show: { $0.loops.map(String.init) ?? "auto" }
        ),
        list("paths", "paths that begin with / and have no ?, # or blanks", \.paths, path, \.self),
        choice("json_bodies", \.readsJSON),
        duration("drain_timeout", \.drainTimeout, .zero, .seconds(3_600)),
        option("log_level", \.logLevel),
        option("log_format", \.logFormat),
        option("access_log", \.accessLog),
        Setting(
            key: "access_log_file", isList: false, allowed: "the path of a file, or empty for standard output",
            apply: { values, settings in
                settings.accessLogFile = values[0]
                return true
            },
            show: { quoted($0.accessLogFile) }
        ),
        choice("request_ids", \.hasRequestIDs),
        option("https.mode", \.https.mode),
        Setting(
            key: "https.public_host", isList: false,
            allowed: "empty, or a host with an optional port, such as tokens.example.com",
            apply: { values, settings in
                let bytes = Array(values[0].utf8)
                guard bytes.isEmpty || bytes.span.isAuthority(ByteRange(0, bytes.count)) else { return false }
                settings.https.publicHost = values[0]
                return true
            },
            show: { quoted($0.https.publicHost) }
        ),
        duration("https.hsts_max_age", \.https.transportSecurityAge, .zero, .seconds(10 * 365 * 86_400)),
        files("tls.certificate", \.tls.certificates),
        files("tls.private_key", \.tls.privateKeys),
        Setting(
            key: "tls.client_ca", isList: false, allowed: "the path of a PEM file, or empty",
            apply: { values, settings in
                settings.tls.clientAuthorities = values[0]
                return true
            },
            show: { quoted($0.tls.clientAuthorities) }
        ),
        Setting(
            key: "trusted_proxies", isList: true,
            allowed: "addresses and blocks, such as 10.0.0.0/8 or fd00::1, and unix for Unix sockets; or none",
            apply: { values, settings in
                let parsed = values == ["none"] ? [] : values.compactMap(TrustedProxy.init)
                settings.trustedProxies = parsed
                return values == ["none"] || parsed.count == values.count
            },
            show: { $0.trustedProxies.isEmpty ? "none" : flow($0.trustedProxies.map(\.description)) }
        ),
        size("limits.request_line", \.limits.requestLine, 256, 1 << 20),
        size("limits.head", \.limits.head, 512, 16 << 20),
        number("limits.fields", \.limits.fieldCount, 10, 10_000),
        size("limits.body", \.limits.body, 1 << 10, 64 << 20),
        size("limits.buffers", \.heldLimit, 1 << 20, 64 << 30),
        number("limits.connections", \.connectionLimit, 1, 1_000_000),
        duration("timeouts.head", \.timeouts.head, .milliseconds(100), .seconds(3_600)),
        duration("timeouts.body", \.timeouts.body, .milliseconds(100), .seconds(3_600)),
        duration("timeouts.handshake", \.timeouts.handshake, .milliseconds(100), .seconds(3_600)),
        duration("timeouts.idle", \.timeouts.idle, .milliseconds(100), .seconds(86_400)),
        duration("timeouts.send", \.timeouts.send, .milliseconds(100), .seconds(3_600)),
    ]

    /// A list as YAML reads it, on one line.
    private static func flow(_ values: [String]) -> String {
        "[" + values.map(quoted).joined(separator: ", ") + "]"
    }

    /// A string as YAML reads it, in quotes where it would mean something else without.
    private static func quoted(_ text: String) -> String {
        let isPlain =
            text.first.map { $0.isLetter || $0.isNumber || $0 == "/" || $0 == "." } ?? false
            && text.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || " ._/%:-".contains($0)) }
            && !text.contains(": ") && !text.hasSuffix(":") && !text.hasSuffix(" ")
        if isPlain { return text }
        return "\"" + text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
    }

    private static func path(_ text: String) -> String? {
        let isAllowed =
            text.hasPrefix("/") && text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && !"#?\"\\".utf8.contains($0) }
        return isAllowed ? text : nil
    }

    // MARK: - Kinds

    private static func list<Value>(
        _ key: String, _ allowed: String, _ place: any WritableKeyPath<Settings, [Value]> & Sendable,
        _ parse: @escaping @Sendable (String) -> Value?, _ text: any KeyPath<Value, String> & Sendable
    ) -> Setting {
        Setting(
            key: key, isList: true, allowed: allowed,
            apply: { values, settings in
                let parsed = values.compactMap(parse)
                settings[keyPath: place] = parsed
                return !parsed.isEmpty && parsed.count == values.count
            },
            show: { flow($0[keyPath: place].map { $0[keyPath: text] }) }
        )
    }

    private static func files(
        _ key: String, _ place: any WritableKeyPath<Settings, [String]> & Sendable
    ) -> Setting {
        Setting(
            key: key, isList: true, allowed: "paths of PEM files, or an empty list",
            apply: { values, settings in
                settings[keyPath: place] = values == [""] ? [] : values
                return values == [""] || !values.contains("")
            },
            show: { flow($0[keyPath: place]) }
        )
    }

    private static func choice(
        _ key: String, _ place: any WritableKeyPath<Settings, Bool> & Sendable
    ) -> Setting {
        // YAML reads on and off as true and false.
        let values = ["on": true, "off": false, "true": true, "false": false]
        return Setting(
            key: key, isList: false, allowed: "on, off",
            apply: { texts, settings in
                guard let value = values[texts[0]] else { return false }
                settings[keyPath: place] = value
                return true
            },
            show: { $0[keyPath: place] ? "on" : "off" }
        )
    }

    private static func orOff<Value: Sendable>(
        _ key: String, _ place: any WritableKeyPath<Settings, Value?> & Sendable, _ allowed: String,
        _ parse: @escaping @Sendable (String) -> Value?, _ text: @escaping @Sendable (Value) -> String
    ) -> Setting {
        Setting(
            key: key, isList: false, allowed: "off, or \(allowed)",
            apply: { values, settings in
                let isOff = values[0] == "off" || values[0] == "false"
                let value = isOff ? nil : parse(values[0])
                settings[keyPath: place] = value
                return isOff || value != nil
            },
            show: { $0[keyPath: place].map(text) ?? "off" }
        )
    }

    private static func option<Value: RawRepresentable<String> & CaseIterable & Sendable>(
        _ key: String, _ place: any WritableKeyPath<Settings, Value> & Sendable
    ) -> Setting {
        Setting(
            key: key, isList: false, allowed: Value.allCases.map(\.rawValue).joined(separator: ", "),
            apply: { values, settings in
                guard let value = Value(rawValue: values[0]) else { return false }
                settings[keyPath: place] = value
                return true
            },
            show: { $0[keyPath: place].rawValue }
        )
    }

    private static func number(
        _ key: String, _ place: any WritableKeyPath<Settings, Int> & Sendable, _ least: Int, _ most: Int
    ) -> Setting {
        within(
            key, place, least, most, "a number from \(least) to \(most)", { $0.hasPrefix("+") ? nil : Int($0) },
            { "\($0)" })
    }

    private static func size(
        _ key: String, _ place: any WritableKeyPath<Settings, Int> & Sendable, _ least: Int, _ most: Int
    ) -> Setting {
        let range = "from \(Quantities.text(bytes: least)) to \(Quantities.text(bytes: most))"
        return within(
            key, place, least, most, "a size \(range), in bytes or with KiB, MiB or GiB, such as 64 KiB",
            Quantities.bytes, Quantities.text(bytes:)
        )
    }

    private static func duration(
        _ key: String, _ place: any WritableKeyPath<Settings, Duration> & Sendable, _ least: Duration, _ most: Duration
    ) -> Setting {
        let range = "from \(Quantities.text(least)) to \(Quantities.text(most))"
        return within(
            key, place, least, most, "a time \(range), in seconds or with ms, s, m, h or d, such as 500ms or 2m",
            Quantities.duration, Quantities.text(_:)
        )
    }

    private static func within<Value: Comparable & Sendable>(
        _ key: String, _ place: any WritableKeyPath<Settings, Value> & Sendable, _ least: Value, _ most: Value,
        _ allowed: String, _ parse: @escaping @Sendable (String) -> Value?,
        _ text: @escaping @Sendable (Value) -> String
    ) -> Setting {
        Setting(
            key: key, isList: false, allowed: allowed,
            apply: { values, settings in
                guard let value = parse(values[0]), value >= least, value <= most else { return false }
                settings[keyPath: place] = value
                return true
            },
            show: { text($0[keyPath: place]) }
        )
    }
}
