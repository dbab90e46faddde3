internal import Settings
internal import System

/// Finds files and folders of the settings that the installed unit keeps from the service, which this process does not notice by
/// trying: it runs outside the unit's sandbox.
enum SandboxCheck {
    private static let topic = "Service"

    static func findings(_ settings: Settings, _ settingsFile: String?, _ user: ServerUser) -> [Finding] {
        guard let service = user.service else { return [] }
        let found = places(settings, settingsFile).compactMap { place -> Finding? in
            // Each process has its own there: /dev/stdout is the doctor's output here, not the server's.
            guard !place.path.hasPrefix("/dev/"), !place.path.hasPrefix("/proc/") else { return nil }
            // A link may lead out of what the service may use.
            let paths = [place.path, Path.resolved(place.path)]
            // The folders of a dynamic user are links to /var/lib/private, which systemd opens.
            guard service.folder(of: place.path) == nil else { return nil }
            guard let path = paths.first(where: { service.sandbox.refusal(of: $0, isWritten: place.isWritten) != nil }),
                let refusal = service.sandbox.refusal(of: path, isWritten: place.isWritten)
            else { return nil }
            let remedy = refusal.remedy.map { ": \($0)" } ?? ""
            return .problem(
                topic,
                """
                \(service.unit) does not let the server \(place.isWritten ? "write" : "read") \(path) (\(refusal.line)), which is \
                \(place.name)
                """,
                "use a path elsewhere, or change the unit with systemctl edit\(remedy)"
            )
        }
        return found.isEmpty ? [.ok(topic, "\(service.unit) lets the server use the paths of the settings")] : found
    }

    private struct Place {
        /// Such as the settings that name it.
        var name: String
        let path: String
        var isWritten = false
    }

    private static func places(_ settings: Settings, _ settingsFile: String?) -> [Place] {
        var places = [
            Place(name: Setting.dataDirectory.key, path: settings.dataDirectoryPath, isWritten: true),
            Place(name: "audit.file", path: settings.audit.file, isWritten: true),
            Place(name: "sealing.key_ring", path: settings.sealing.keyRing),
            Place(name: "access.api.keys_file", path: settings.access.apiKeysFile),
            Place(name: "access.bearer.keys_file", path: settings.access.bearer.keysFile),
            Place(name: "admin.keys_file", path: settings.admin.keysFile),
            Place(name: "tls.client_ca", path: settings.tls.clientAuthorities),
        ]
        if let settingsFile { places.append(Place(name: "the settings file", path: settingsFile)) }
        places += settings.tls.certificates.map { Place(name: "tls.certificate", path: $0) }
        places += settings.tls.privateKeys.map { Place(name: "tls.private_key", path: $0) }
        if !settings.audit.file.isEmpty {
            places.append(Place(name: "audit.key_file", path: settings.auditKeyPath, isWritten: true))
        }
        if settings.accessLog != .off {
            places.append(Place(name: "access_log_file", path: settings.accessLogFile, isWritten: true))
        }
        for case .unix(let path) in settings.listen.map(\.place) {
            places.append(Place(name: "a Unix socket of listen", path: Path.folder(of: path), isWritten: true))
        }
        return merged(places)
    }

    /// Joins the places that have the same path and are all written, or all only read, into one with the names of all their settings.
    private static func merged(_ places: [Place]) -> [Place] {
        var merged: [Place] = []
        for place in places {
            let index = merged.firstIndex { $0.path == place.path && $0.isWritten == place.isWritten }
            if let index {
                // A setting may name a file twice.
                if !merged[index].name.hasSuffix(place.name) { merged[index].name += " and \(place.name)" }
            } else {
                merged.append(place)
            }
        }
        return merged
    }
}
