import Testing

@testable import Settings

@Suite struct YAMLTests {
    private func entries(_ text: String) throws -> [String] {
        try YAMLEntries(Array(text.utf8)).entries.map { "\($0.line) \($0.key) \($0.values)" }
    }

    @Test(
        arguments: [
            ("", []), ("# nothing\n", []), ("---\n", []), ("{}", []),
            ("\u{feff}a: b\nc: d", ["1 a [\"b\"]", "2 c [\"d\"]"]),
            ("a: b\r\nc: d\r\n", ["1 a [\"b\"]", "2 c [\"d\"]"]),
            ("a:\n  b: 1\n  c:\n    d: [x, y]\n", ["2 a.b [\"1\"]", "4 a.c.d [\"x\", \"y\"]"]),
            ("a.b: 1\na:\n  c: 2", ["1 a.b [\"1\"]", "3 a.c [\"2\"]"]),
            ("{\"a\": true, \"b\": {\"c\": [1, \"2\"]}}", ["1 a [\"true\"]", "1 b.c [\"1\", \"2\"]"]),
            ("a: ~\nb:\nc: []\nd: null", ["1 a [\"\"]", "2 b [\"\"]", "3 c []", "4 d [\"\"]"]),
            ("a: '~'\nb: \"null\"\nc: nullable", ["1 a [\"~\"]", "2 b [\"null\"]", "3 c [\"nullable\"]"]),
            ("a: !!str 5\nb: |\n  c\n", ["1 a [\"5\"]", "2 b [\"c\\n\"]"]),
        ]
    )
    func `keys are read with their lines, and values as their text`(text: String, found: [String]) throws {
        #expect(try entries(text) == found)
    }

    @Test(
        arguments: [
            ("a: 1\nb: 2\na: 3", 3, "a is a duplicate of the one on line 1"),
            ("a:\n  b: 1\nc: 1\na:\n  d: 1", 4, "a is a duplicate of the one on line 1"),
            ("a.b: 1\na:\n  b: 1", 3, "a.b is a duplicate of the one on line 1"),
            ("a: 1\n---\nb: 2", 2, "a second document begins, and only one is read"),
            ("word", 1, "found no keys; write them as in log_level: info"),
            ("- a", 1, "found no keys; write them as in log_level: info"),
            ("? [a]\n: b", 1, "a key must be a word, without an anchor or an alias"),
            ("a: 1\n*x : 2", 2, "a key must be a word, without an anchor or an alias"),
            ("&x a: 1", 1, "a key must be a word, without an anchor or an alias"),
            ("a: &x 1\nb: *x", 1, "a has an anchor, which no setting takes; write plain values"),
            ("a: 1\nb: *x", 2, "b has an alias, which no setting takes; write plain values"),
            ("a:\n- *x", 2, "a has an alias, which no setting takes; write plain values"),
            ("a:\n- &x 1", 2, "a has an anchor, which no setting takes; write plain values"),
            ("a: [[b], c]", 1, "a has a list or a section within a list, which no setting takes; write plain values"),
            ("a:\n  - b: c", 2, "a has a list or a section within a list, which no setting takes; write plain values"),
            ("a: {}", 1, "a is an empty section"),
            ("a: [b", 1, "a comma or the closing bracket ] is missing, while parsing a flow sequence"),
            ("a:\n  b: [c,\n\n", 3, "did not find expected node content, while parsing a flow node"),
            ("a:\n\tb: 1", 2, "the line begins with a tab; indent it with spaces, as YAML takes no tabs there"),
            (
                "a:\n  -\tb", 2,
                """
                no value begins like this; put one that begins with @, `, % or a tab in quotation marks, while scanning for \
                the next token
                """
            ),
            (
                "a: b: c", 1,
                "a key has a value already; put a value with a colon in quotation marks, and check the indentation"
            ),
            ("a: \"b", 1, "the closing quotation mark is missing, while scanning a quoted scalar"),
            ("a: 1\nb: \u{1}", 2, "control characters are not allowed"),
        ]
    )
    func `what cannot be read is named with its line`(text: String, line: Int, reason: String) {
        #expect(throws: YAMLEntries.Fault(line: line, reason: reason)) { try entries(text) }
    }

    @Test(arguments: ["[", "{a: "])
    func `deep nesting ends the reading soon`(bracket: String) {
        let text = "a: " + String(repeating: bracket, count: 300_000)
        #expect(throws: YAMLEntries.Fault.self) { try entries(text) }
    }
}
