import Glibc
import System
import TestSupport
import Testing

@testable import Server

struct StartErrorTests {
    @Test(arguments: [
        (EMFILE, "LimitNOFILE="), (ENFILE, "fs.file-max"), (ENOMEM, "short of memory"), (ENOBUFS, "short of memory"),
    ])
    func `a shortage names the address that could not be listened on, and the limit to raise`(
        code: Int32, advice: String
    ) throws {
        let error = SystemError(call: "socket", code: code)
        let text = try #require(StartError.shortage(error, listeningOn: "127.0.0.1:8080")).description
        #expect(text.contains("listening on 127.0.0.1:8080 failed (socket: \(error.reason))") && text.contains(advice))
        let other = try #require(StartError.shortage(error)).description
        #expect(other.contains(advice) && !other.contains("listening"))
    }

    @Test func `what helps an access log that cannot be opened depends on what is there`() throws {
        let directory = try TemporaryDirectory()
        let path = directory.path + "/pipe"
        #expect(mkfifo(path, 0o600) == 0)
        for (path, advice) in [
            ("/dev/stdout", "leave access_log_file empty"), ("/proc/self/fd/1", "leave access_log_file empty"),
            (path, "start its reader first"), (directory.path + "/none/a.log", "its folder has to exist"),
        ] {
            let text = StartError.accessLog(path: path, SystemError(call: "open", code: ENXIO)).description
            #expect(text.contains(advice))
        }
    }

    @Test func `another reason is no shortage`() {
        #expect(
            StartError.shortage(SystemError(call: "bind", code: EADDRNOTAVAIL), listeningOn: "127.0.0.1:8080") == nil)
    }
}
