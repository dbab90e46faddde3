internal import EventLoop
internal import Server
internal import Settings

/// Checks the certificates and private keys of the settings.
enum CertificateCheck {
    private static let topic = "Certificates"
    /// Certificates that expire within this many seconds get a warning.
    private static let notice: Int64 = 14 * 86_400

    static func findings(_ settings: Settings, _ rights: Rights, now: Int64) -> [Finding] {
        guard !settings.tls.certificates.isEmpty else { return [.ok(topic, "none are set")] }
        let files = TLSFiles(settings)
        var findings = files.pairs.flatMap { pair in
            FileCheck.privateKey(pair.privateKey, topic)
                + (unreadable([pair.certificateChain, pair.privateKey], rights) ?? [certificate(pair, now: now)])
        }
        if let file = files.clientAuthorities { findings += unreadable([file], rights) ?? authorities(file, now: now) }
        return findings
    }

    /// A finding if this user may not read a file, or if it exists only while the service runs; nil if all can be examined.
    private static func unreadable(_ paths: [String], _ rights: Rights) -> [Finding]? {
        // One file may hold certificate and key.
        let paths = paths.count == 2 && paths[0] == paths[1] ? [paths[0]] : paths
        var findings = paths.compactMap { rights.refusesReading($0, topic) }
        findings += paths.filter(StoreCredential.isTransient).map {
            .warning(
                topic, "\($0) is a credential, which is there only while the service runs",
                "run token-cache doctor again while the service runs"
            )
        }
        return findings.isEmpty ? nil : findings
    }

    private static func certificate(_ pair: TLSFiles.Pair, now: Int64) -> Finding {
        do throws(TLSConfigurationError) {
            return dates(of: try TLSContext.examine(pair), now: now)
        } catch {
            return .problem(topic, error)
        }
    }

    private static func authorities(_ file: String, now: Int64) -> [Finding] {
        do throws(TLSConfigurationError) {
            let authorities = try TLSContext.examine(authorities: file)
            return [.ok(topic, authorities.trust)]
                + authorities.warnings(at: now).map { warning in
                    let parts = warning.split(separator: "; ", maxSplits: 1).map(String.init)
                    return .warning(topic, parts[0], parts.last ?? "")
                }
        } catch {
            return [.problem(topic, error)]
        }
    }

    static func dates(of certificate: TLSCertificate, now: Int64) -> Finding {
        let (path, expiry) = (certificate.path, certificate.expiry)
        let renewal = "renew it; the server reads it by itself when the file changes"
        let day = LogTime.text(expiry).prefix { $0 != "T" }
        if now < certificate.start {
            let first = LogTime.text(certificate.start).prefix { $0 != "T" }
            return .problem(
                topic, "\(path) is not valid before \(first)",
                "check that the clock is right, or use another certificate")
        }
        if now >= expiry { return .problem(topic, "\(path) has expired on \(day)", renewal) }
        let names = certificate.names.isEmpty ? "no name" : certificate.names.joined(separator: ", ")
        let text = "\(path) for \(names) is valid until \(day)"
        return expiry - now < notice ? .warning(topic, "\(text), for less than 14 days", renewal) : .ok(topic, text)
    }
}
