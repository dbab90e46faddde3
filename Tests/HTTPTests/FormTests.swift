import HTTP
import Testing

private func whole(_ bytes: [UInt8]) -> ByteRange { ByteRange(0, bytes.count) }

@Suite struct URLEncodedFormTests {
    private func pairs(_ text: String) -> [String] {
        let bytes = Array(text.utf8)
        var pairs: [String] = []
        URLEncodedForm.forEachPair(in: whole(bytes), of: bytes.span) { name, value in
            var decoded: [UInt8] = []
            URLEncodedForm.appendDecoded(value, of: bytes.span, to: &decoded)
            pairs.append("\(bytes.span.text(name))=\(String(decoding: decoded, as: UTF8.self))")
        }
        return pairs
    }

    @Test(
        "a form is split as PHP splits it",
        arguments: [
            ("", []), ("&&&", []), ("a", ["a="]), ("a=", ["a="]), ("=b", ["=b"]), ("a=b=c", ["a=b=c"]),
            ("a=1&b=2", ["a=1", "b=2"]), ("&a=1&&b=2&", ["a=1", "b=2"]), ("a=1;b=2", ["a=1;b=2"]),
            ("a=+%20%2B%2b", ["a=  ++"]), ("a=%", ["a=%"]), ("a=%4", ["a=%4"]), ("a=%41", ["a=A"]),
            ("a=%zz%4z", ["a=%zz%4z"]), ("a=%%41", ["a=%A"]), ("a=%2541", ["a=%41"]), ("a=1\r\n", ["a=1\r\n"]),
        ]
    )
    func splits(text: String, expected: [String]) {
        #expect(pairs(text) == expected)
    }

    @Test(
        "a name counts when it is the name after decoding",
        arguments: [
            ("unique_id", true), ("unique%5Fid", true), ("%75nique_i%64", true), ("unique+id", false),
            ("Unique_id", false), ("unique_id%00", false), ("unique_id[]", false), ("unique_i", false),
        ]
    )
    func names(name: String, matches: Bool) {
        let bytes = Array(name.utf8)
        #expect(URLEncodedForm.name(whole(bytes), of: bytes.span, standsFor: "unique_id") == matches)
    }
}

@Suite struct MediaTypeTests {
    @Test(
        "the Content-Type decides how the body is read",
        arguments: [
            ("application/x-www-form-urlencoded", MediaType.urlEncodedForm),
            ("APPLICATION/X-www-form-urlencoded;charset=x", .urlEncodedForm),
            ("application/x-www-form-urlencoded, text/plain", .urlEncodedForm),
            ("application/x-www-form-urlencodedx", .other), ("", .other), ("text/plain", .other),
            ("application/json; charset=utf-8", .json),
            ("multipart/form-data", .multipartForm(boundary: nil)),
            ("multipart/form-data; boundary=ab c", .multipartForm(boundary: Array("ab c".utf8))),
            ("multipart/form-data; BOUNDARY=ab;x=y", .multipartForm(boundary: Array("ab".utf8))),
            ("multipart/form-data; boundary=\"a;b\"", .multipartForm(boundary: Array("a;b".utf8))),
            ("multipart/form-data; boundary=\"ab", .multipartForm(boundary: nil)),
            ("multipart/form-data; charset=u; boundary=ab, c", .multipartForm(boundary: Array("ab".utf8))),
        ]
    )
    func types(text: String, type: MediaType) {
        let bytes = Array(text.utf8)
        #expect(MediaType(whole(bytes), of: bytes.span) == type)
    }
}

@Suite struct MultipartFormTests {
    private func fields(_ text: String, boundary: String = "b") -> [String] {
        let bytes = Array(text.utf8)
        var form = MultipartForm(in: whole(bytes), boundary: Array(boundary.utf8))
        var fields: [String] = []
        while let (name, value) = form.nextField(of: bytes.span) {
            fields.append("\(String(decoding: name, as: UTF8.self))=\(bytes.span.text(value))")
        }
        return fields
    }

    private func part(_ disposition: String, _ value: String) -> String {
        "--b\r\nContent-Disposition: \(disposition)\r\n\r\n\(value)\r\n"
    }

    @Test("fields come in order, with their raw values")
    func order() {
        let text = part("form-data; name=\"a\"", "1+%20") + part("form-data; name=b", "x\r\ny") + "--b--\r\n"
        #expect(fields(text) == ["a=1+%20", "b=x\r\ny"])
        #expect(fields(text.replacing("\r\n", with: "\n")) == ["a=1+%20", "b=x\ny"])
        #expect(fields("before\r\n" + text + "after") == ["a=1+%20", "b=x\r\ny"])
    }

    @Test(
        "only a part with a name and without a file name is a field",
        arguments: [
            ("form-data; name=\"a\"; filename=\"\"", []), ("form-data; FILENAME=x; name=a", []),
            ("form-data", []), ("form-data; name=\"a;b\"", ["a;b=v"]), ("form-data;NAME='a'", ["a=v"]),
            ("form-data; x=\"\\\"; filename=y\"; name=a", ["a=v"]), ("form-data; name=\"a\\\"b\"", ["a\"b=v"]),
            ("form-data; name= a ; z=1", ["a=v"]),
        ]
    )
    func dispositions(disposition: String, expected: [String]) {
        #expect(fields(part(disposition, "v") + "--b--\r\n") == expected)
    }

    @Test("a part that the end of the body cuts off is no field")
    func cutOff() {
        #expect(
            fields(part("form-data; name=a", "1") + "--b\r\nContent-Disposition: form-data; name=c\r\n\r\nv") == ["a=1"]
        )
        #expect(fields("--b\r\nContent-Disposition: form-data; name=a").isEmpty)
        #expect(fields("").isEmpty)
        #expect(fields("--b").isEmpty)
    }
}
