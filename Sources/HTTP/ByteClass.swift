/// The byte sets of the HTTP grammar, as tables that are built once.
package enum ByteClass {
    /// `token` of RFC 9110, section 5.6.2: methods and field names.
    static let token = table { byte in
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "a")...UInt8(ascii: "z"):
            true
        default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
        }
    }

    /// What a field value may hold (RFC 9110, section 5.5): visible characters, blanks, tabs and bytes from 0x80.
    static let fieldValue = table { $0 == 0x09 || $0 >= 0x20 && $0 != 0x7f }

    /// What a request target may hold: visible ASCII but `#`.
    ///
    /// The grammar (RFC 3986) is narrower; the sample client sends braces and quotes unencoded, which no parser reads
    /// in two ways.
    static let target = table { $0 > 0x20 && $0 < 0x7f && $0 != UInt8(ascii: "#") }

    /// `reg-name` of RFC 3986, section 3.2.2, with the percent sign of its escapes.
    static let host = table { byte in
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "a")...UInt8(ascii: "z"):
            true
        default: "-._~!$&'()*+,;=%".utf8.contains(byte)
        }
    }

    private static func table(_ contains: (UInt8) -> Bool) -> [Bool] {
        (UInt8.min...UInt8.max).map(contains)
    }

    static func isDigit(_ byte: UInt8) -> Bool {
        byte >= UInt8(ascii: "0") && byte <= UInt8(ascii: "9")
    }

    /// The value of a hexadecimal digit in either case.
    @inline(__always)
    package static func hexValue(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}

extension UInt8 {
    static let carriageReturn = UInt8(ascii: "\r")
    static let lineFeed = UInt8(ascii: "\n")
    static let space = UInt8(ascii: " ")
    static let tab = UInt8(ascii: "\t")
}
