import EventLoop
import Glibc
import Settings
import System

extension TLSFiles {
    /// The files that `tls.certificate`, `tls.private_key` and `tls.client_ca` name.
    ///
    /// - Parameter settings: Must name at least one pair of certificate and key.
    init(_ settings: Settings) {
        let authorities = settings.tls.clientAuthorities
        self.init(
            zip(settings.tls.certificates, settings.tls.privateKeys).map(Pair.init),
            clientAuthorities: authorities.isEmpty ? nil : authorities)
    }
}

extension TLSCertificate {
    /// A warning if a certificate has expired, is not yet valid, or expires within 14 days; otherwise nil.
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
        let certificate =
            issuer.map { "a certificate that is sent with the server's own, that of \($0)," } ?? "a certificate"
        if now >= expiry { return "\(certificate) has expired: clients refuse it; \(renewal)" }
        switch (expiry - now) / 86_400 {
        case 14...: return nil
        case 0: return "\(certificate) expires within a day; \(renewal)"
        case let days: return "\(certificate) expires in \(days) \(days == 1 ? "day" : "days"); \(renewal)"
        }
    }
}

extension TLSClientAuthorities {
    /// Whose certificates are trusted, for the log.
    var trust: String {
        let authorities = expiries.count == 1 ? "the certificate authority" : "one of the \(expiries.count) authorities"
        return "clients' certificates are trusted if issued by \(authorities) in \(path)"
    }

    /// A warning if there are authorities that admit no client.
    func warning(at now: Int64 = Int64(time(nil))) -> String? {
        let count = expiries.count { $0 < now }
        guard count > 0 else { return nil }
        return """
            \(path) holds \(count) certificate \(count == 1 ? "authority" : "authorities") whose time has passed or whose key is \
            too weak, such as RSA with 1024 bits: clients with certificates of such an authority are refused; find it with \
            openssl storeutl -noout -text -certs \(path), and replace it
            """
    }
}
