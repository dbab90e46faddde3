import Testing

@testable import HTTP

@Suite struct ByteClassTests {
    private static func isLetterOrDigit(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "a")...UInt8(ascii: "z"):
            true
        default: false
        }
    }

    private static let grammar: [(String, ByteClass, @Sendable (UInt8) -> Bool)] = [
        ("token", .token, { isLetterOrDigit($0) || "!#$%&'*+-.^_`|~".utf8.contains($0) }),
        ("fieldValue", .fieldValue, { $0 == 0x09 || $0 >= 0x20 && $0 != 0x7f }),
        ("target", .target, { $0 > 0x20 && $0 < 0x7f && $0 != UInt8(ascii: "#") }),
        ("host", .host, { isLetterOrDigit($0) || "-._~!$&'()*+,;=%".utf8.contains($0) }),
    ]

    @Test("the bits of each class are those of its rule")
    func bits() {
        for (name, byteClass, contains) in Self.grammar {
            for byte in UInt8.min...UInt8.max {
                #expect(byteClass.contains(byte) == contains(byte), "\(name), byte \(byte)")
            }
        }
    }

    @Test("what is escaped is decoded wherever it stands, and what is not stays")
    func decoding() {
        for (text, expected) in [
            ("plain", "plain"), ("", ""), ("a+b", "a b"), ("%41", "A"), ("%4", "%4"), ("%", "%"), ("%4g", "%4g"),
            ("x%20%2B+%zz%c3%a9", "x + %zzé"), ("%%41", "%A"),
        ] {
            let bytes = Array("??\(text)??".utf8)
            var decoded: [UInt8] = []
            URLEncodedForm.appendDecoded(ByteRange(2, bytes.count - 2), of: bytes.span, to: &decoded)
            #expect(String(decoding: decoded, as: UTF8.self) == expected)
        }
    }
}
