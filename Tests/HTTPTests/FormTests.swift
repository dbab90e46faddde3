import HTTP
import Testing

private func whole(_ bytes: [UInt8]) -> ByteRange { ByteRange(0, bytes.count) }

@Suite struct URLEncodedFormTests {
    private func pairs(_ text: String, from source: URLEncodedForm.Source = .query) -> [String] {
        let bytes = Array(text.utf8)
        var pairs: [String] = []
        URLEncodedForm.forEachPair(in: whole(bytes), of: bytes.span, from: source) { name, value in
            let decoded = URLEncodedForm.decoded(value, of: bytes.span)
            pairs.append("\(bytes.span.text(name))=\(String(decoding: decoded, as: UTF8.self))")
        }
        return pairs
    }

    @Test(
        arguments: [
            ("", []), ("&&&", []), ("a", ["a="]), ("a=", ["a="]), ("=b", ["=b"]), ("a=b=c", ["a=b=c"]),
            ("a=1&b=2", ["a=1", "b=2"]), ("&a=1&&b=2&", ["a=1", "b=2"]), ("a=1;b=2", ["a=1;b=2"]),
            ("a=+%20%2B%2b", ["a=  ++"]), ("a=%", ["a=%"]), ("a=%4", ["a=%4"]), ("a=%41", ["a=A"]),
            ("a=%zz%4z", ["a=%zz%4z"]), ("a=%%41", ["a=%A"]), ("a=%2541", ["a=%41"]), ("a=1\r\n", ["a=1\r\n"]),
        ]
    )
    func `a form is split as PHP splits it`(text: String, expected: [String]) {
        #expect(pairs(text) == expected)
    }
}

@Suite struct MediaTypeTests {
    @Test(
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
    func `the Content-Type decides how the body is read`(text: String, type: MediaType) {
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

    @Test
    func `fields come in order, with their raw values`() {
        let text = part("form-data; name=\"a\"", "1+%20") + part("form-data; name=b", "x\r\ny") + "--b--\r\n"
        #expect(fields(text) == ["a=1+%20", "b=x\r\ny"])
        #expect(fields(text.replacing("\r\n", with: "\n")) == ["a=1+%20", "b=x\ny"])
        #expect(fields("before\r\n" + text + "after") == ["a=1+%20", "b=x\r\ny"])
    }

    @Test
    func `the first 1,000 fields count, and of all parts the first 1,020, as in PHP`() {
        for count in [998, 999, 1_000, 1_001] {
            let text = String(repeating: part("name=a", "1"), count: count) + part("name=b", "2") + "--b--\r\n"
            #expect(fields(text).contains("b=2") == (count < 1_000))
        }
        for count in [1_018, 1_019, 1_020, 1_021] {
            let file = part("name=a; filename=\"\"", "")
            let text = String(repeating: file, count: count) + part("name=b", "2") + "--b--\r\n"
            #expect(fields(text).contains("b=2") == (count < 1_020))
            // What lies before them stays.
            #expect(fields(part("name=b", "2") + text).contains("b=2"))
        }
        let nothing = String(repeating: "--b\r\nContent-Type: a/b\r\n\r\n1\r\n", count: 1_100)
        #expect(fields(nothing + part("name=b", "2") + "--b--\r\n") == ["b=2"])
    }

    @Test(
        arguments: [
            ("form-data; name=\"a\"; filename=\"\"", []), ("form-data; FILENAME=x; name=a", []),
            ("form-data", []), ("form-data; name=\"a;b\"", ["a;b=v"]), ("form-data;NAME='a'", ["a=v"]),
            ("form-data; x=\"\\\"; filename=y\"; name=a", ["a=v"]), ("form-data; name=\"a\\\"b\"", ["a\"b=v"]),
            ("form-data; name= a ; z=1", ["a=v"]), ("name=\"a\"", ["a=v"]), ("; ;;\tname=a", ["a=v"]),
            ("form-data; name =\"a\"", []), ("form-data; name= \"a\"", ["a=v"]),
            ("form-data;\u{b}\rname=\u{c}a", ["a=v"]),
            ("form-data; name==\"a\"", ["a=v"]), ("form-data; \"name\"=a", []), ("form-data; name", []),
            ("form-data; name=", ["=v"]), ("form-data; name=b; name=a", ["a=v"]), ("form-data; name*=a", []),
            ("form-data; name=\"a\"b", ["a=v"]), ("form-data; name='a\"b'", ["a\"b=v"]),
            ("form-data; name=\"a", ["a=v"]),
            ("form-data; name=\"a\\b\"", ["a\\b=v"]), ("form-data; name=a\\\\b\\\"", ["a\\b\\\"=v"]),
            ("form-data; name=a\\", ["a\\=v"]), ("form-data; name=\"a\\", ["a\\=v"]),
            // The second backslash keeps the quote from ending the segment, not the name.
            ("form-data; name=\"a\\\\\"; filename=y", ["a\\=v"]), ("form-data; x=\"\\\\\"; name=a", []),
        ]
    )
    func `only a part with a name and without a file name is a field`(disposition: String, expected: [String]) {
        #expect(fields(part(disposition, "v") + "--b--\r\n") == expected)
    }

    @Test(
        arguments: [
            ("Content-Disposition: form-data;\r\n name=\"a\"", ["a=v"]),
            ("Content-Disposition:\r\n\tname=\"a\"", ["a=v"]), ("Content-Disposition: form-data\r\n; name=a", ["a=v"]),
            ("Content-Disposition: form-data; na\r\nme=a", ["a=v"]), ("Content-Disposition: name=a\r\nb", ["ab=v"]),
            ("Content-Disposition: name=\"a\r\n b\"", ["a b=v"]),
            ("Content-Disposition: name=\"a\r\n\u{b}b:\"", ["a\u{b}b:=v"]),
            ("Content-Disposition: name=a\r\nX: y\r\n; name=b", ["a=v"]),
            ("Content-Disposition: name=a\r\n: y\r\n; name=b", ["a=v"]),
            ("; name=b\r\nContent-Disposition: name=a", ["a=v"]),
            ("X: y\r\n Content-Disposition: name=b\r\nCONTENT-disposition:name=a", ["a=v"]),
            ("Content-Disposition: name=a\r\nContent-Disposition: name=b", ["a=v"]),
            ("Content-Disposition: name=a\r\nContent-Disposition: filename=b\r\n; name=c", ["a=v"]),
            ("Content-Disposition : name=a", []), (" Content-Disposition: name=a", []), ("X: y", []),
        ]
    )
    func `a line that begins with white space or has no colon goes on with the header before it`(
        headers: String, expected: [String]
    ) {
        let text = "--b\r\n\(headers)\r\n\r\nv\r\n--b--\r\n"
        #expect(fields(text) == expected)
        #expect(fields(text.replacing("\r\n", with: "\n")) == expected)
    }

    @Test
    func `what is behind a part depends on its disposition`() {
        let field = part("form-data; name=a", "1") + "--b--\r\n"
        #expect(fields(part("form-data; name=c; filename=d", "v") + field) == ["a=1"])
        #expect(fields("--b\r\nX: y\r\n\r\n" + field) == ["a=1"])
        #expect(fields("--b\r\nContent-Disposition: name=c; filename=\r\n\r\n" + field) == ["a=1"])
        // A name is missing, and PHP gives up.
        #expect(fields(part("form-data", "v") + field).isEmpty)
        #expect(fields(part("", "v") + field).isEmpty)
        #expect(fields(part("form-data; name=c", "v") + part("form-data; x=y", "v") + field) == ["c=v"])
    }

    @Test
    func `a part that the end of the body cuts off is no field`() {
        #expect(
            fields(part("form-data; name=a", "1") + "--b\r\nContent-Disposition: form-data; name=c\r\n\r\nv") == ["a=1"]
        )
        #expect(fields("--b\r\nContent-Disposition: form-data; name=a").isEmpty)
        #expect(fields("").isEmpty)
        #expect(fields("--b").isEmpty)
    }
}
