/// A parser of what strangers or damaged files contain, and what has to be true whatever the input is.
///
/// The same targets run under libFuzzer and, with few inputs, in the module tests. Any thread, one at a time.
package struct FuzzTarget: Sendable, CustomStringConvertible {
    /// Also the name of the folder with its inputs, below `Tests/Fuzzing/corpus`.
    package let name: String
    /// What means something to the parser; mutations insert it.
    package let words: [String]
    /// How many mutations the module tests make; few if each of them takes long.
    package let mutationCount: Int
    /// Throws `Mismatch` if the parser does something else than it should; a crash says so as well.
    package let check: @Sendable (_ input: [UInt8]) throws -> Void

    init(
        _ name: String, words: [String], mutationCount: Int = 1_000,
        check: @escaping @Sendable (_ input: [UInt8]) throws -> Void
    ) {
        (self.name, self.words, self.mutationCount, self.check) = (name, words, mutationCount, check)
    }

    package var description: String { name }

    package static let all = [
        requests, forms, tags, json, proxies, expirations, jwt, keyRings, settings, commands, databases, audit,
    ]
}

/// The parser and what it is compared with disagree.
package struct Mismatch: Error, CustomStringConvertible {
    package let description: String

    init(_ description: String) {
        self.description = description
    }
}

/// Throws unless two values are equal.
func compare<Value: Equatable>(_ found: Value, _ expected: Value, _ subject: String) throws {
    guard found == expected else { throw Mismatch("\(subject): found \(found), expected \(expected)") }
}

/// Throws unless something is true.
func require(_ condition: Bool, _ sentence: @autoclosure () -> String) throws {
    guard condition else { throw Mismatch(sentence()) }
}
