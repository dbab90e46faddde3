/// A setting of an earlier version.
///
/// Settings files that still have it start a server, which warns of it, as long as that weakens nothing and clients notice nothing.
struct FormerSetting: Sendable {
    let key: String
    /// Whether an environment variable has several values, separated by commas.
    let isList: Bool
    /// What is done instead, to be read after "is no setting any more: ".
    let instead: String
    /// What to do about a value that is refused, to be read after `instead`.
    let refusal: String
    /// Translates the values into those of other settings, which have been read; returns false if they are refused.
    let takeOver: @Sendable (_ values: [String], _ settings: inout Settings) -> Bool

    private init(
        _ key: String, _ instead: String, isList: Bool = true, refusal: String = "; remove it",
        takeOver: @escaping @Sendable (_ values: [String], _ settings: inout Settings) -> Bool = { _, _ in true }
    ) {
        (self.key, self.instead, self.isList, self.refusal, self.takeOver) = (key, instead, isList, refusal, takeOver)
    }

    static let all = [
        FormerSetting(
            "sealing.enabled", "tokens are always encrypted",
            refusal: """
                . If the store holds tokens in the clear, encrypt them with token-cache copy --from OLD --to NEW, serve the new store, \
                and remove this setting
                """
        ) { values, _ in values == ["on"] || values == ["true"] },
        FormerSetting(
            "admin.hosts",
            "the names with a dot stand behind the addresses of admin.listen, as in 0.0.0.0:9090?host=NAME"
        ) { names, settings in
            // A name without a dot needs no entry.
            let hosts = names.filter { $0.contains(".") }
            settings.admin.listen = settings.admin.listen.map { $0.adding(hosts) }
            return true
        },
        FormerSetting(
            "store.queue.max_wait", "store.timeout takes its place, also without store.url"
        ) { values, settings in
            // Where 5s was the default of store.timeout, it had no effect without store.url.
            guard settings.store.url.isEmpty, [nil, .seconds(5)].contains(settings.store.timeout) else { return true }
            return values.count == 1 && apply(values[0], as: "store.timeout", &settings)
        },
        FormerSetting(
            "loops",
            "one thread serves for each core that the server may use (CPUAffinity= of systemd or taskset leave cores to others)"
        ),
        FormerSetting(
            "access.session.per_user", "a user may have \(Settings.Session.perUser) sessions",
            refusal: """
                ; for fewer, let the app's server end a user's sessions (DELETE /v1/users/USER/sessions) before it makes one; for \
                more, let it make a user for each group of devices; and remove this setting
                """
        ) { values, _ in values.compactMap(Quantities.number).contains { (20...Settings.Session.perUser).contains($0) }
        },
        FormerSetting(
            "access.bearer.algorithms",
            "a key of access.bearer.keys_file is used with its alg, or without one with all algorithms of its kind"
        ),
        FormerSetting(
            "access_log_file", "the path is behind the format, as in access_log: json /var/log/access.log",
            isList: false
        ) { values, settings in
            guard values.count == 1 else { return false }
            if settings.accessLog.isOn && settings.accessLog.file.isEmpty { settings.accessLog.file = values[0] }
            return true
        },
        FormerSetting("limits.request_line", "the request line may take all of limits.head"),
        FormerSetting("timeouts.head", "it is a third of timeouts.body") { values, settings in
            var changed = settings
            // In version 1.0, both settings allowed at most an hour.
            guard let time = values.first.flatMap(Quantities.duration), time <= .seconds(3_600),
                apply(Quantities.text(min(time * 3, .seconds(3_600))), as: "timeouts.body", &changed)
            else { return false }
            settings.timeouts.body = max(settings.timeouts.body, changed.timeouts.body)
            return true
        },
    ]

    /// Reads the text as another setting's, within the limits of that one; returns false if it is refused.
    private static func apply(_ text: String, as key: String, _ settings: inout Settings) -> Bool {
        Setting.all.first { $0.key == key }?.apply([text], &settings) ?? false
    }
}
