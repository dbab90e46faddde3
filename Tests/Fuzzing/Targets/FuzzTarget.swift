import Dispatch
import Foundation
import Glibc
import Synchronization
import TestSupport

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
        requests, forms, tags, json, proxies, expirations, jwt, settings, databases, audit,
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

/// Changes to an input that parsers stumble over.
package enum Mutation {
    /// The input with one to four changes.
    package static func mutated(
        _ input: [UInt8], words: [String], using random: inout some RandomNumberGenerator
    ) -> [UInt8] {
        var bytes = input
        for _ in 0..<Int.random(in: 1...4, using: &random) {
            let place = Int.random(in: 0...bytes.count, using: &random)
            let end = min(bytes.count, place + Int.random(in: 1...32, using: &random))
            switch Int.random(in: 0..<8, using: &random) {
            case 0, 1, 2: bytes.insert(contentsOf: word(words, &random), at: place)
            case 3: bytes.replaceSubrange(place..<end, with: word(words, &random))
            case 4: bytes.removeSubrange(place..<end)
            case 5: bytes.insert(contentsOf: bytes[place..<end], at: Int.random(in: 0...bytes.count, using: &random))
            case 6: bytes.insert(UInt8.random(in: 0...255, using: &random), at: place)
            default: if place < bytes.count { bytes[place] ^= 1 << UInt8.random(in: 0..<8, using: &random) }
            }
        }
        return bytes
    }

    private static func word(_ words: [String], _ random: inout some RandomNumberGenerator) -> [UInt8] {
        Array((words.randomElement(using: &random) ?? "").utf8)
    }
}

extension [UInt8] {
    /// A number that depends on all bytes (FNV-1a), by which a target makes choices that come again with the same input.
    var choice: UInt64 {
        reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x0000_0100_0000_01b3 }
    }
}

/// A text in which each character is one byte, as the models read it; Swift's strings take CR LF for one character.
typealias Text = ArraySlice<Unicode.Scalar>

extension Sequence<UInt8> {
    var text: Text { map { Unicode.Scalar($0) }[...] }
}

extension String {
    var text: Text { Array(unicodeScalars)[...] }
}

extension Text {
    /// For comparisons and messages.
    var string: String { String(String.UnicodeScalarView(self)) }

    /// ASCII letters in lower case.
    var lowercased: String {
        String(String.UnicodeScalarView(map { "A"..."Z" ~= $0 ? Unicode.Scalar(UInt8($0.value + 32)) : $0 }))
    }

    /// Without the blanks and tabs at its ends.
    var trimmed: Text {
        let start = drop { $0 == " " || $0 == "\t" }
        return start[..<(start.lastIndex { $0 != " " && $0 != "\t" }.map { $0 + 1 } ?? start.startIndex)]
    }

    /// The elements of a comma-separated list (RFC 9110, section 5.6.1).
    var elements: [Text] {
        split(separator: ",").map(\.trimmed).filter { !$0.isEmpty }
    }

    /// RFC 9110, section 5.6.2.
    var isToken: Bool {
        !isEmpty && allSatisfy { $0.isLetterOrDigit || "!#$%&'*+-.^_`|~".unicodeScalars.contains($0) }
    }

    var isDigits: Bool { !isEmpty && allSatisfy(\.isDigit) }

    func hasPrefix(_ prefix: String) -> Bool { starts(with: prefix.unicodeScalars) }

    func hasSuffix(_ suffix: String) -> Bool {
        self.suffix(suffix.unicodeScalars.count).elementsEqual(suffix.unicodeScalars)
    }
}

extension Unicode.Scalar {
    var isDigit: Bool { "0"..."9" ~= self }
    var isLetterOrDigit: Bool { isDigit || "a"..."z" ~= self || "A"..."Z" ~= self }
    var isHexadecimal: Bool { isDigit || "a"..."f" ~= self || "A"..."F" ~= self }
    /// RFC 9110, section 5.5.
    var isInFieldValue: Bool { self == "\t" || value >= 0x20 && value != 0x7f }
}

/// Files of targets that read files, in a folder that the process removes at its end.
enum Files {
    /// In memory if that is possible, as stores and audit logs sync their files many times for each input.
    static let folder: TemporaryDirectory = {
        let folder = TemporaryDirectory(in: FileManager.default.isWritableFile(atPath: "/dev/shm") ? "/dev/shm" : nil)
        atexit { try? FileManager.default.removeItem(atPath: Files.folder.path) }
        return folder
    }()

    /// Writes a file that only its owner may read, in the place of one of that name.
    @discardableResult
    static func write(_ bytes: some Sequence<UInt8>, to name: String) -> String {
        let path = name.hasPrefix("/") ? name : folder.path + "/" + name
        let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
        precondition(descriptor >= 0, "the temporary folder can be written to")
        let bytes = Array(bytes)
        precondition(Glibc.write(descriptor, bytes, bytes.count) == bytes.count, "the temporary folder has room")
        close(descriptor)
        return path
    }

    /// The bytes of a file; none if there is none.
    static func read(_ path: String) -> [UInt8] {
        FileManager.default.contents(atPath: path).map { Array($0) } ?? []
    }

    /// Makes a folder; one of the same name is replaced.
    ///
    /// - Returns: Its path.
    static func emptyFolder(_ name: String) -> String {
        let path = folder.path + "/" + name
        try? FileManager.default.removeItem(atPath: path)
        precondition(mkdir(path, 0o700) == 0, "the temporary folder can be written to")
        return path
    }
}

/// Waits on the calling thread for work that is asynchronous, as a target's check is not.
func wait<Value: Sendable>(for work: @escaping @Sendable () async throws -> Value) throws -> Value {
    let outcome = Outcome<Value>()
    let isDone = DispatchSemaphore(value: 0)
    Task.detached {
        do {
            let value = try await work()
            outcome.result.withLock { $0 = .success(value) }
        } catch {
            outcome.result.withLock { $0 = .failure(error) }
        }
        isDone.signal()
    }
    isDone.wait()
    guard let result = outcome.result.withLock(\.self) else { preconditionFailure("the work has an outcome") }
    return try result.get()
}

private final class Outcome<Value: Sendable>: Sendable {
    let result = Mutex<Result<Value, any Error>?>(nil)
}
