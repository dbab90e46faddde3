import Testing

@testable import JSON

@Suite struct JSONCursorTests {
    /// The string that a text is; nil if it is malformed.
    private func string(_ text: String) -> String? {
        let bytes = Array(text.utf8)
        var cursor = JSONCursor(position: 0, end: bytes.count)
        guard let string = try? cursor.string(bytes.span), cursor.position == bytes.count else { return nil }
        return String(decoding: string, as: UTF8.self)
    }

    @Test(
        arguments: [
            (#""""#, ""), (#""a b""#, "a b"), (#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"),
            (#""\u0041\u00e9""#, "Aé"),
            (#""\ud83d\ude00""#, "😀"), (#""\uD83D\uDE00é""#, "😀é"), (#""\u0000""#, "\0"),
        ]
    )
    func `the escapes of a string are undone`(_ text: String, _ expected: String) {
        #expect(string(text) == expected)
    }

    @Test(
        arguments: [
            "", "\"", "\"a", #"a""#, #""\""#, #""\x""#, #""\u""#, #""\u12""#, #""\u12g4""#, #""\u123"#, #""\ud83d""#,
            #""\ud83dx""#, #""\ud83d\n""#, #""\ud83d\u0041""#, #""\ude00""#, "\"\n\"", #"'a'"#,
        ]
    )
    func `a malformed string is refused`(_ text: String) {
        #expect(string(text) == nil)
    }

    /// The members of an object and their values' texts; nil if it is malformed.
    private func members(_ text: String) -> [String]? {
        let bytes = Array(text.utf8)
        var cursor = JSONCursor(position: 0, end: bytes.count)
        var members: [String] = []
        do throws(JSONCursor.Malformed) {
            try cursor.expect(UInt8(ascii: "{"), bytes.span)
            try cursor.forEachMember(bytes.span) { (name, cursor) throws(JSONCursor.Malformed) in
                let start = cursor.position
                try cursor.skipValue(bytes.span, depth: 1)
                let value = bytes[start..<cursor.position]
                members.append(String(decoding: name + Array("=".utf8) + value, as: UTF8.self))
            }
        } catch {
            return nil
        }
        return cursor.position == bytes.count ? members : nil
    }

    @Test(
        arguments: [
            ("{}", []), ("{ }", []), (#"{"a":1}"#, ["a=1"]), (#"{"a" : -0.5e+3 , "b":[ ] }"#, ["a=-0.5e+3", "b=[ ]"]),
            (
                #"{"a":{"b":[1,"]",{"c":null}]},"d":true,"e":false}"#,
                [#"a={"b":[1,"]",{"c":null}]}"#, "d=true", "e=false"]
            ),
            (#"{"a":"}\"","a":0}"#, [#"a="}\"""#, "a=0"]),
        ]
    )
    func `an object's members are read with values of any kind`(_ text: String, _ expected: [String]) {
        #expect(members(text) == expected)
    }

    @Test(
        arguments: [
            "{", "}", "{,}", #"{"a"}"#, #"{"a":}"#, #"{"a":1,}"#, #"{"a":1 "b":2}"#, #"{a:1}"#, #"{"a":01}"#,
            #"{"a":1.}"#,
            #"{"a":+1}"#, #"{"a":1e}"#, #"{"a":nul}"#, #"{"a":[1,]}"#, #"{"a":[1}"#, #"{"a":{]}"#, #"{"a":-}"#,
        ]
    )
    func `a malformed object is refused`(_ text: String) {
        #expect(members(text) == nil)
    }

    @Test func `nesting that is too deep is refused, as every level takes a stack frame`() {
        func nested(_ depth: Int) -> String {
            #"{"a":"# + String(repeating: "[", count: depth) + String(repeating: "]", count: depth) + "}"
        }
        #expect(members(nested(60)) != nil)
        #expect(members(nested(100_000)) == nil)
    }
}
