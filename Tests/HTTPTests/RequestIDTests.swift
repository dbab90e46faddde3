import HTTP
import Testing

/// Ids of requests as they are shown.
struct RequestIDTests {
    @Test(arguments: [0, 1, 9, 10, 0xABCDEF, 0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210, .max])
    func sixteenDigits(_ number: UInt64) {
        #expect(RequestID.made(number).text == Self.padded(number))
    }

    @Test func anyNumber() {
        for _ in 0..<10_000 {
            let number = UInt64.random(in: .min ... .max)
            #expect(RequestID.made(number).text == Self.padded(number))
        }
    }

    /// In a head that is kept for the next answers, no digit of one is left for another.
    @Test func eachAnswerHasItsOwn() {
        let encoder = ResponseEncoder(unixTime: 0, secureForSeconds: 60)
        let ids: [RequestID] = [.made(1), .made(.max), .given(Array("a-b_c.d".utf8)), .none, .made(2)]
        for isSecure in [false, true] {
            for id in ids {
                var output: [UInt8] = []
                encoder.encode(
                    Response(body: Array("{}".utf8)), ResponseEncoder.Traits(isSecure: isSecure), requestID: id,
                    into: &output
                )
                let lines = String(decoding: output, as: UTF8.self).split(separator: "\r\n")
                let named = lines.filter { $0.hasPrefix("X-Request-Id: ") }
                #expect(named == (id.text.map { ["X-Request-Id: \($0)"] } ?? []))
                #expect(lines.contains("Content-Length: 2") && lines.last == "{}")
            }
        }
    }

    private static func padded(_ number: UInt64) -> String {
        let digits = String(number, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }
}
