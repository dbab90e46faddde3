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
        ("literal", .literal, { $0 >= UInt8(ascii: ",") && $0 < 0x7f && $0 != UInt8(ascii: "<") }),
        ("host", .host, { isLetterOrDigit($0) || "-._~!$&'()*+,;=".utf8.contains($0) }),
    ]

    @Test
    func `a stranger is found wherever it stands, and nothing else is taken for one`() {
        for (name, byteClass, contains) in Self.grammar {
            for length in [1, 7, 8, 9, 16, 21] {
                for place in 0..<length {
                    for byte in UInt8.min...UInt8.max {
                        var bytes = [UInt8](repeating: UInt8(ascii: "a"), count: length + 2)
                        bytes[1 + place] = byte
                        // What stands around it is not looked at.
                        (bytes[0], bytes[length + 1]) = (0, 0)
                        let isFound = !bytes.span.all(1..<(1 + length), in: byteClass)
                        #expect(isFound == !contains(byte), "\(name), byte \(byte) at \(place) of \(length)")
                    }
                }
            }
        }
    }

    @Test
    func `a name is known in any case, and no other for one byte of it`() {
        let names: [StaticString] = [
            "te", "host", "x-real-ip", "x-forwarded-proto", "application/x-www-form-urlencoded",
        ]
        func isKnown(_ bytes: [UInt8], _ name: StaticString) -> Bool {
            bytes.span.equalsIgnoringCase(ByteRange(0, bytes.count), name)
        }
        for name in names {
            let lower = Array("\(name)".utf8)
            for place in lower.indices {
                for byte in UInt8.min...UInt8.max {
                    var bytes = lower
                    bytes[place] = byte
                    let isSame = byte == lower[place] || Self.isLetterOrDigit(byte) && byte | 0x20 == lower[place]
                    #expect(isKnown(bytes, name) == isSame, "\(name), byte \(byte) at \(place)")
                }
            }
            #expect(isKnown(Array("\(name)".uppercased().utf8), name))
            #expect(!isKnown(lower.dropLast(), name))
        }
    }

    @Test
    func `decoding byte by byte gives the same, wherever escapes are among eight bytes`() {
        // At each place in a word, and among bytes that a test of eight bytes at once could take for an escape.
        let others = Array("*,$&".utf8) + [0xa5, 0xab, 0x00, 0xff]
        for length in 1...20 {
            for place in 0..<length {
                for escape in ["+", "%41", "%4", "%", "++", "+%41", "%41+", "%+", "%%2b"] {
                    for other in others {
                        var bytes = [UInt8](repeating: other, count: length)
                        bytes.replaceSubrange(place..<place + 1, with: escape.utf8)
                        let decoded = URLEncodedForm.decoded(ByteRange(0, bytes.count), of: bytes.span)
                        #expect(decoded == Self.decoded(bytes), "\(escape) at \(place) of \(length) times \(other)")
                    }
                }
            }
        }
    }

    private static func decoded(_ bytes: [UInt8]) -> [UInt8] {
        var (result, rest) = ([UInt8](), bytes[...])
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "+"):
                result.append(UInt8(ascii: " "))
            case UInt8(ascii: "%"):
                let digits = String(decoding: rest.prefix(2), as: UTF8.self)
                if rest.count >= 2, digits.allSatisfy(\.isHexDigit), let value = UInt8(digits, radix: 16) {
                    result.append(value)
                    rest.removeFirst(2)
                } else {
                    result.append(byte)
                }
            default:
                result.append(byte)
            }
        }
        return result
    }
}
