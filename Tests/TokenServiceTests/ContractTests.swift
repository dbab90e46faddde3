import HTTP
import TestSupport
import Testing
import TokenStore

@testable import TokenService

@Suite struct ContractTests {
    @Test("the golden vectors are answered as recorded", arguments: try Fixtures.vectors())
    func vector(vector: Fixtures.Vector) async {
        let harness = ServiceHarness()
        for step in vector.steps {
            let response = await harness.answer(step.bytes())
            #expect(response.status.rawValue == step.expect.status, "\(step.note)")
            if let expected = step.expectedBody() {
                let (got, wanted) = (
                    String(decoding: response.body, as: UTF8.self), String(decoding: expected, as: UTF8.self)
                )
                #expect(got == wanted, "\(step.note)")
            }
        }
    }

    @Test(
        "an answer is cached under the id that was fetched, however the query spells it",
        arguments: 0..<20 as Range<UInt64>)
    func idsInCache(seed: UInt64) async {
        var random = SeededGenerator(seed: seed)
        let parts = [
            "unique_id=", "unique%5Fid=", "&", "a", "Z9", "-._~", "%41", "%", "+", "%00", "%C3%A9", "%ff", "<b>",
            "%3Cb>", "<", "=",
            "/", ";", String(repeating: "x", count: 1_020),
        ]
        var fetches = 0
        for _ in 0..<200 {
            let harness = ServiceHarness()
            harness.handle.echoesIDs = true
            let value = (0..<Int.random(in: 0...5, using: &random)).map { _ in
                parts.randomElement(using: &random) ?? ""
            }
            let answers = [
                await harness.get("unique_id=" + value.joined()), await harness.get("unique_id=" + value.joined()),
            ]
            #expect(answers[0] == answers[1], "\(value)")
            #expect(harness.answers.counts.hits == harness.handle.fetched.count, "\(value)")
            fetches += harness.handle.fetched.count
        }
        #expect(fetches > 50)
    }

    @Test(
        "names and lengths decide which id the cache and the store are asked for",
        arguments: [
            ("a&unique%5Fid=b", ["b"]), ("a&unique_id=b", ["b"]), ("a&unique_id=", []), ("%61", ["a"]),
            (String(repeating: "x", count: 1_024), [String(repeating: "x", count: 1_024)]),
            (String(repeating: "x", count: 1_025), []),
        ]
    )
    func idsAtTheEdge(query: String, ids: [String]) async {
        let harness = ServiceHarness()
        harness.handle.echoesIDs = true
        for _ in 0..<2 { _ = await harness.get("unique_id=\(query)") }
        #expect(harness.handle.fetched == ids.map { Array($0.utf8) })
        #expect(harness.answers.counts.hits == ids.count)
    }

    @Test("a cached answer is whole, and found without the store")
    func cached() async {
        let harness = ServiceHarness()
        harness.handle.tokens = [
            Array("a".utf8): Array("a long answer".utf8), Array("é".utf8): Array("short".utf8),
        ]
        for _ in 0..<2 {
            for (query, info) in [("a", "a long answer"), ("%C3%A9", "short"), ("%61", "a long answer")] {
                #expect(await harness.get("unique_id=\(query)") == #"{"status":"true","token_info":"\#(info)"}"#)
            }
        }
        #expect(harness.handle.fetched.count == 2)
    }

    @Test("other paths are not found, whatever the method")
    func unknownPaths() async {
        let harness = ServiceHarness()
        for path in [
            "/", "/token/", "/Token", "/token.php/x", "/%74oken", "/tokens", "/toke", "//token", "/./token",
            "/a/../token", "/token;a", "/token%00",
        ] {
            for method in ["GET", "POST", "HEAD", "PUT"] {
                let response = await harness.answer(Array("\(method) \(path) HTTP/1.1\r\nHost: a\r\n\r\n".utf8))
                #expect(response.status == .notFound, "\(method) \(path)")
                #expect(String(decoding: response.body, as: UTF8.self).contains(#""errorCode":"40400""#))
            }
        }
    }

    @Test("a failing store gives the contract's codes, is reported, and loses nothing")
    func failingStore() async {
        var reported: [StoreError] = []
        let harness = ServiceHarness { reported.append($0) }
        #expect(await harness.post("unique_id=a&token_info=1") == stored)
        harness.handle.failure = .closed
        #expect(
            await harness.post("unique_id=a&token_info=2")
                == #"{"status":"false","errorCode":"50001","errorMessage":"Could not write file contents."}"#
        )
        #expect(await harness.get("unique_id=a") == unknown)
        #expect(reported == [.closed, .closed])
        harness.handle.failure = nil
        #expect(await harness.get("unique_id=a") == #"{"status":"true","token_info":"1"}"#)
    }

    /// As recorded from PHP 8.2, whose array or lack of a value has the script fail with status 500.
    @Test(
        "of a plain value and an array of one name the last counts, and an array is no value",
        arguments: [
            ("unique_id=v&unique_id[]=q", "nothing"), ("unique_id[]=q&unique_id=v", "v"), ("unique_id[]=", "nothing"),
            ("unique_id=v&unique_id[]", "nothing"), ("unique_id=v&unique_id%5B%5D=q", "nothing"),
            ("unique_id=v&unique_id[a]b=q", "nothing"), ("unique_id=v&unique_id[a%5D=q", "nothing"),
            ("unique_id=v&unique_id[=q", "v"), ("unique_id=v&unique_id[", "v"), ("unique_id=v&unique_id[%00]=q", "v"),
            ("unique_id=v&unique_id]=q", "v"), ("unique_id[=v", "nothing"), ("%75nique_i%64=v", "v"),
            ("unique_id=v&%75nique%5Fid[[]=q", "nothing"), ("Unique_id=v", "nothing"), ("unique_id%00=v", "nothing"),
            ("unique_id=v&unique_id[]%00=q", "v"), ("unique_id=v&+unique_id[]=q", "v"),
        ]
    )
    func arrays(query: String, found: String) async {
        let harness = ServiceHarness()
        #expect(await harness.post("unique_id=v&token_info=1") == stored)
        let expected = found == "v" ? #"{"status":"true","token_info":"1"}"# : invalid
        #expect(await harness.get(query) == expected)
        // In a body as in a query, and its array comes before a plain value of the query.
        #expect(await harness.post("\(query)&token_info=1") == (found == "v" ? stored : invalid))
        #expect(await harness.post("token_info=1&token_info[]=2", query: "unique_id=v") == invalid)
        #expect(await harness.post("unique_id=v&token_info=1", query: "unique_id[]=q&token_info[]=q") == stored)
        let part = { (name: String) in "--b\r\nContent-Disposition: form-data; name=\(name)\r\n\r\nx\r\n" }
        let form = part("token_info") + part("unique_id[]") + "--b--\r\n"
        #expect(await harness.post(form, type: "multipart/form-data; boundary=b", query: "unique_id=v") == invalid)
        let plain = part("token_info[]") + part("token_info") + "--b--\r\n"
        #expect(await harness.post(plain, type: "multipart/form-data; boundary=b", query: "unique_id=v") == stored)
    }

    @Test("a parameter behind those that PHP reads is absent")
    func mostParameters() async {
        let harness = ServiceHarness()
        #expect(await harness.post("unique_id=v&token_info=1") == stored)
        let others = { (count: Int) in String(repeating: "a=1&", count: count) }
        #expect(await harness.get(others(999) + "unique_id=v") == #"{"status":"true","token_info":"1"}"#)
        #expect(await harness.get(others(1_000) + "unique_id=v") == invalid)
        // Empty segments count in a body alone.
        let empty = String(repeating: "&", count: 1_001)
        #expect(await harness.get(empty + "unique_id=v") == #"{"status":"true","token_info":"1"}"#)
        #expect(await harness.post(empty + "unique_id=v&token_info=1") == invalid)
        let repeated = "unique_id=v&" + others(999) + "unique_id=w"
        #expect(await harness.get(repeated) == #"{"status":"true","token_info":"1"}"#)
        #expect(await harness.post("token_info=1&" + others(999) + "unique_id=v") == stored)
        #expect(await harness.post("token_info=1&" + others(1_000) + "unique_id=v") == invalid)
        // Each of the two has its own.
        #expect(await harness.post("token_info=1&" + others(900) + "unique_id=v", query: others(900)) == stored)
    }

    @Test("the length of an id counts after tags are removed")
    func idLength() async {
        let harness = ServiceHarness()
        let longest = String(repeating: "i", count: 1024)
        #expect(await harness.post("unique_id=<b>\(longest)</b>&token_info=1") == stored)
        #expect(await harness.get("unique_id=\(longest)") == #"{"status":"true","token_info":"1"}"#)
        #expect(await harness.get("unique_id=\(longest)i") == invalid)
    }
}

@Suite struct JSONBodyTests {
    private func answer(_ body: String, then query: String = "unique_id=a") async -> String {
        let harness = ServiceHarness(readsJSON: true)
        let posted = await harness.post(body, type: "application/json")
        return posted == stored ? await harness.get(query) : posted
    }

    @Test(
        "two strings are stored, an object as its own text",
        arguments: [
            (#"{"unique_id":"a","token_info":"x"}"#, "x"),
            (#" { "token_info" : "" , "unique_id" : "a" } "#, ""),
            (#"{"unique_id":"a","token_info":"\u00e9\ud83d\ude00\n\/"}"#, #"\u00e9\ud83d\ude00\n\/"#),
            (
                #"{"unique_id":"a","token_info":{"k" : [1, {"x":null}], "v":-1.5e+3}}"#,
                #"{\"k\" : [1, {\"x\":null}], \"v\":-1.5e+3}"#
            ),
            (#"{"unique_id":"a","token_info":"2","z":[true,false,[]]}"#, "2"),
            (#"{"unique_id":"a","token_info":"<b>x</b>"}"#, "x"),
        ]
    )
    func accepted(body: String, tokenInfo: String) async {
        #expect(await answer(body) == #"{"status":"true","token_info":"\#(tokenInfo)"}"#)
    }

    @Test(
        "anything else has no fields",
        arguments: [
            "", "[]", "{}", "null", #"{"unique_id":"b","unique_id":"a","token_info":"2"}"#, #"{"unique_id":"a"}"#,
            #"{"unique_id":"a","token_info":1}"#,
            #"{"unique_id":"a","token_info":null}"#, #"{"unique_id":"a","token_info":["x"]}"#,
            #"{"unique_id":1,"token_info":"x"}"#, #"{"unique_id":"a","token_info":"x"}}"#,
            #"{"unique_id":"a","token_info":"\ud800"}"#, #"{"unique_id":"a","token_info":"x""#,
            #"{"unique_id":"a","token_info":{"k":01}}"#,
            "{\"unique_id\":\"a\",\"token_info\":{\"k\":" + String(repeating: "[", count: 100_000),
        ]
    )
    func refused(body: String) async {
        #expect(await answer(body) == invalid)
    }

    @Test("the query fills in what the body lacks, and counts alone when the body is no JSON")
    func query() async {
        let harness = ServiceHarness(readsJSON: true)
        let query = "unique_id=a&token_info=q"
        #expect(await harness.post(#"{"token_info":"b"}"#, type: "application/json", query: query) == stored)
        #expect(await harness.get("unique_id=a") == #"{"status":"true","token_info":"b"}"#)
        #expect(await harness.post("{", type: "application/json", query: query) == stored)
        #expect(await harness.get("unique_id=a") == #"{"status":"true","token_info":"q"}"#)
    }
}
