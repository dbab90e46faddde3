import EventLoop
import Testing

@testable import Server

struct CertificateWarningTests {
    private let day: Int64 = 86_400
    /// 2026-11-21.
    private let now: Int64 = 1_795_219_200

    @Test func `a running server warns about certificates that clients refuse now or within 14 days`() {
        let warning = { (start: Int64, end: Int64) in
            TLSCertificate(path: "a.pem", start: now + start * day, expiry: now + end * day, names: []).warning(at: now)
                ?? ""
        }
        #expect(warning(-1, 30) == "")
        #expect(warning(-1, 13).hasPrefix("a certificate expires in 13 days; "))
        #expect(warning(-30, 0).hasPrefix("a certificate has expired: "))
        #expect(warning(1, 90).hasPrefix("a certificate is not valid before 2026-11-22: "))
    }
}
