#if TokenRefresh
import TestSupport
import Testing

@testable import TokenRefresh

@Suite struct JSONMembersTests {
    private func text(_ members: JSONMembers, _ changes: [(name: String, value: String?)]) -> String {
        String(decoding: members.text(with: changes.map { ($0.name, $0.value.map { Array($0.utf8) }) }), as: UTF8.self)
    }

    @Test(
        arguments: [
            (#"{"a":1,"b":2}"#, "a", "3", #"{"a":3,"b":2}"#), (#"{"a":1,"b":2}"#, "b", "3", #"{"a":1,"b":3}"#),
            (#" { "a" : 1 , "b" : 2 } "#, "b", "3", #" { "a" : 1 , "b" : 3 } "#),
            (#"{"a":1}"#, "b", "3", #"{"a":1,"b":3}"#), (#"{ "a":1 }"#, "b", "3", #"{ "a":1,"b":3 }"#),
            ("{}", "b", "3", #"{"b":3}"#), (#"{"\u0061":1}"#, "a", "3", #"{"\u0061":3}"#),
            (#"{"a":1,"b":2}"#, "a", nil, #"{"b":2}"#), (#"{"a":1 , "b":2}"#, "a", nil, #"{ "b":2}"#),
            (#"{"a":1,"b":2}"#, "b", nil, #"{"a":1}"#), (#"{"a":1}"#, "a", nil, "{}"),
            (#"{"a":1}"#, "b", nil, #"{"a":1}"#),
        ] as [(String, String, String?, String)]
    )
    func `a member is set, added or removed, and all other bytes stay`(
        _ before: String, _ name: String, _ value: String?, _ after: String
    ) throws {
        #expect(text(try #require(JSONMembers(Array(before.utf8))), [(name, value)]) == after)
    }

    @Test(
        arguments: [
            "", "null", "[]", #"{"a":1"#, #"{"a":1}x"#, #"{"a":1,"a":2}"#, #"{"a":1,"\u0061":2}"#, "{\"a\":\"\u{1}\"}",
            String(repeating: #"{"a":"#, count: 100) + "1" + String(repeating: "}", count: 100),
        ]
    )
    func `what is not one object with each member once is refused`(_ text: String) {
        #expect(JSONMembers(Array(text.utf8)) == nil)
    }

    @Test func `bytes that are no UTF-8 are refused`() {
        #expect(JSONMembers(Array("{\"a\":\"".utf8) + [0xff] + Array("\"}".utf8)) == nil)
    }

    @Test(
        arguments: [
            ("3600", 3600), ("\"3600\"", 3600), ("3600.5", 3600), ("0", 0), ("-1", nil), ("\"\"", nil), ("null", nil),
            ("1e3", 1000), ("1e300", nil), ("\"x\"", nil), ("true", nil),
        ] as [(String, Int64?)]
    )
    func `numbers are read as servers write them`(_ value: String, _ number: Int64?) throws {
        #expect(try #require(JSONMembers(Array("{\"n\":\(value)}".utf8))).number("n") == number)
    }

    /// A random object: its names, and its text with random white space.
    private func object(_ random: inout SeededGenerator) -> (names: [String], text: String) {
        func space() -> String { String(repeating: " ", count: Int.random(in: 0..<3, using: &random)) }
        let names = ["a", "b", "\\u0063", "é", "long name", ""].shuffled(using: &random).prefix(
            Int.random(in: 0..<6, using: &random))
        let values = ["1", "\"x,\\\"}\"", "{\"a\":[1,{}]}", "[]", "null", "\"<é>\"", "-0.5e+3", "true"]
        let members = names.map { name in
            "\(space())\"\(name)\"\(space()):\(space())\(values.randomElement(using: &random) ?? "1")\(space())"
        }
        return (Array(names), "\(space()){\(members.joined(separator: ","))\(space())}\(space())")
    }

    @Test func `whatever is changed, the text stays one object, and a member that came and went leaves no trace`()
        throws
    {
        var random = SeededGenerator(seed: 57)
        for _ in 0..<5_000 {
            let (names, before) = object(&random)
            let members = try #require(JSONMembers(Array(before.utf8)), "\(before)")
            let added = text(members, [("new", "\"value\"")])
            let withNew = try #require(JSONMembers(Array(added.utf8)), "\(added)")
            #expect(withNew.string("new") == Array("value".utf8))
            #expect(text(withNew, [("new", nil)]) == before)
            // Several changes at once.
            let changed = ["a", "b", "c", "é", "new"].shuffled(using: &random).prefix(3).map { name in
                (name: name, value: Bool.random(using: &random) ? "7" : nil)
            }
            let after = text(members, changed)
            let result = try #require(JSONMembers(Array(after.utf8)), "\(before) became \(after)")
            let lenient = try #require(JSONMembers(ofAnyReader: Array(before.utf8)), "\(before)")
            #expect(text(lenient, changed.map { ($0.name, nil) }) == text(members, changed.map { ($0.name, nil) }))
            for (name, value) in changed { #expect(result.value(name) == value.map { Array($0.utf8) }, "\(after)") }
            for name in names where !changed.contains(where: { $0.name == (name == "\\u0063" ? "c" : name) }) {
                let read = name == "\\u0063" ? "c" : name
                #expect(result.value(read) == members.value(read), "\(before) became \(after)")
            }
        }
    }
}
#endif
