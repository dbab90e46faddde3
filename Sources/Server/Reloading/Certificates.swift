package import EventLoop
internal import Glibc
package import Settings
internal import System

extension TLSFiles {
    /// The files that `tls.certificate`, `tls.private_key` and `tls.client_authorities` name.
    ///
    /// - Parameter settings: Must name at least one pair of certificate and key.
    package init(_ settings: Settings) {
        let authorities = settings.tls.clientAuthorities
        self.init(
            zip(settings.tls.certificates, settings.tls.privateKeys).map(Pair.init),
            clientAuthorities: authorities.isEmpty ? nil : authorities)
    }
}

extension TLSCertificate {
    /// A warning if the certificate has expired, is not yet valid, or expires within 14 days; otherwise nil.
    ///
    /// - Parameter now: Seconds since 1970.
    func warning(at now: Int64 = Int64(time(nil))) -> String? {
        let renewal = "replace \(path) with a new one"
        if now < start {
            let first = UTCTime.text(start, "%F")
            return """
                a certificate is not valid before \(first): clients refuse it; check that the clock is right, \
                or replace \(path)
                """
        }
        if now >= expiry { return "a certificate has expired: clients refuse it; \(renewal)" }
        switch (expiry - now) / 86_400 {
        case 14...: return nil
        case 0: return "a certificate expires within a day; \(renewal)"
        case let days: return "a certificate expires in \(days) \(days == 1 ? "day" : "days"); \(renewal)"
        }
    }
}

extension TLSClientAuthorities {
    private static let nameLimit = 20

    /// The trusted authorities, for the log.
    package var trust: String {
        let names = trusted.prefix(Self.nameLimit).map { "\"\($0.name)\"" }.joined(separator: ", ")
        let rest = trusted.count - Self.nameLimit
        return "clients' certificates are trusted if issued by \(names)\(rest > 0 ? " and \(rest) more" : "") (\(path))"
    }

    /// Warnings about authorities that admit no client any more.
    package func warnings(at now: Int64 = Int64(time(nil))) -> [String] {
        trusted.filter { $0.expiry < now }.map {
            "the authority \"\($0.name)\" in \(path) has expired: clients with its certificates are refused; replace it"
        }
    }
}
