internal import EventLoop
internal import Glibc

/// When a certificate in use counts, for those who have to renew it.
struct CertificateDates: Sendable {
    private let path: String
    private let start: Int64
    private let expiry: Int64

    init(_ path: String, from start: Int64, to expiry: Int64) {
        self.path = path
        self.start = start
        self.expiry = expiry
    }

    /// Reads the files of certificates once more; what cannot be read is told of elsewhere.
    static func read(_ files: TLSFiles) -> [CertificateDates] {
        ([files.standard] + files.others).compactMap { pair in
            guard let found = try? TLSExamination(pair, clientAuthorities: nil) else { return nil }
            return CertificateDates(pair.certificateChain, from: found.start, to: found.expiry)
        }
    }

    /// What is to be done about it, if anything.
    func warning(at now: Int64 = Int64(time(nil))) -> String? {
        let renewal = "put a new one in the place of \(path)"
        if now < start {
            let first = LogTime.text(start).prefix { $0 != "T" }
            return """
                a certificate is not valid before \(first): clients refuse it; see whether the clock is right, \
                or put another one in the place of \(path)
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
