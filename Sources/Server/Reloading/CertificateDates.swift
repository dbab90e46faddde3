internal import EventLoop
internal import Glibc

/// From when until when a certificate in use is valid.
struct CertificateDates: Sendable {
    private let path: String
    private let start: Int64
    private let expiry: Int64

    init(_ path: String, from start: Int64, to expiry: Int64) {
        self.path = path
        self.start = start
        self.expiry = expiry
    }

    /// Reads the dates from the certificate files; skips files that cannot be read, which loading them reports.
    static func read(_ files: TLSFiles) -> [CertificateDates] {
        ([files.standard] + files.others).compactMap { pair in
            guard let found = try? TLSExamination(pair, clientAuthorities: nil) else { return nil }
            return CertificateDates(pair.certificateChain, from: found.start, to: found.expiry)
        }
    }

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
