import Glibc
import System
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

    @Test func `another reason is no shortage`() {
        #expect(
            StartError.shortage(SystemError(call: "bind", code: EADDRNOTAVAIL), listeningOn: "127.0.0.1:8080") == nil)
    }
}
