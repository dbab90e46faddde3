internal import EventLoop
internal import Glibc

extension TLSCertificate {
    /// A warning if the certificate has expired, is not yet valid, or expires within 14 days; otherwise nil.
    ///
    /// - Parameter now: Seconds since 1970.
    func warning(at now: Int64 = Int64(time(nil))) -> String? {
        let renewal = "replace \(path) with a new one"
        if now < start {
            let first = LogTime.text(start).prefix { $0 != "T" }
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
