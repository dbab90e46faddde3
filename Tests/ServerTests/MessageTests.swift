import Glibc
import System
import TestSupport
import Testing

@testable import EventLoop
@testable import Server

@Suite struct StartErrorTests {
    @Test(arguments: [
        (EMFILE, "LimitNOFILE="), (ENFILE, "fs.file-max"), (ENOMEM, "MemoryMax="), (ENOBUFS, "MemoryMax="),
    ])
    func `a shortage names the address that could not be listened on, and the limit to raise`(
        code: Int32, advice: String
    ) throws {
        let error = SystemError(call: "socket", code: code)
        for (text, name) in [
            (StartError.listening(on: "127.0.0.1:80", error), "127.0.0.1:80"),
            (.listening(onSocketAt: "/run/a.sock", error), "unix:/run/a.sock"),
        ] {
            #expect("\(text)".hasPrefix("\(name) cannot be listened on (socket: \(error.reason))"))
            #expect("\(text)".hasSuffix(advice))
        }
        #expect("\(StartError.setup(error))".hasSuffix(advice))
    }

    @Test func `what helps an access log that cannot be opened depends on what is there`() throws {
        let directory = TemporaryDirectory()
        let path = directory.path + "/pipe"
        #expect(mkfifo(path, 0o600) == 0)
        for (path, advice) in [
            ("/dev/stdout", "name no file"), ("/proc/self/fd/1", "name no file"),
            (path, "start its reader first"), (directory.path + "/none/a.log", "its folder has to exist"),
        ] {
            let text = StartError.accessLog(path, SystemError(call: "open", code: ENXIO)).description
            #expect(text.contains(advice))
        }
    }

    @Test(arguments: [
        ("bind", EADDRINUSE, "in use by another program"), ("bind", EACCES, "CAP_NET_BIND_SERVICE"),
        ("bind", EADDRNOTAVAIL, "choose an address of this machine"),
    ])
    func `an address that cannot be listened on comes with what helps`(call: String, code: Int32, advice: String) {
        #expect("\(StartError.listening(on: "127.0.0.1:80", SystemError(call: call, code: code)))".contains(advice))
    }

    @Test(arguments: [
        ("bind", EADDRINUSE, "is not a socket"), ("bind", ENOENT, "the folder of unix:"),
        ("bind", EACCES, "may not write"),
        ("bind", EROFS, "name a path elsewhere"), ("connect", EACCES, "may not see"),
    ])
    func `a Unix socket that cannot be made comes with what helps`(call: String, code: Int32, advice: String) throws {
        let path = TemporaryDirectory().path + "/none.sock"
        let error = StartError.listening(onSocketAt: path, SystemError(call: call, code: code))
        #expect("\(error)".contains(advice))
    }
}

@Suite struct CertificateWarningTests {
    private let day: Int64 = 86_400
    /// 2026-11-21.
    private let now: Int64 = 1_795_219_200

    @Test func `a running server warns about certificates that clients refuse now or within 14 days`() {
        func warning(_ start: Int64, _ end: Int64, _ issuer: String? = nil) -> String {
            let (start, expiry) = (now + start * day, now + end * day)
            return TLSCertificate(path: "a.pem", start: start, expiry: expiry, issuer: issuer, names: []).warning(
                at: now)
                ?? ""
        }
        #expect(warning(-1, 30) == "")
        #expect(warning(-1, 13).hasPrefix("a certificate expires in 13 days; "))
        #expect(warning(-30, 0).hasPrefix("a certificate has expired: "))
        #expect(warning(1, 90).hasPrefix("a certificate is not valid before 2026-11-22: "))
        let issuer = "a certificate that is sent with the server's own, that of x,"
        #expect(warning(-1, 1, "x").hasPrefix("\(issuer) expires in 1 day; "))
        #expect(warning(-1, -1, "x").hasPrefix("\(issuer) has expired: "))
    }
}
