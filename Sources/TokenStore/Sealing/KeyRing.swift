package import Cryptography
import System

/// The keys of a sealed store: the index key, which makes row keys, and numbered keys, which seal values.
///
/// One of the numbered keys seals: the newest, unless a shared store says otherwise. All of them open what they have
/// sealed.
package struct KeyRing: Sendable {
    package struct NumberedKey: Sendable {
        /// From 1, never used twice.
        package let number: Int
        /// Seconds since 1970.
        package let createdAt: Int64
        package let key: SecretKey

        /// Distinguishes this key from another one with the same number, and is not secret: the beginning of a
        /// constant's hash under the key, in hexadecimal.
        package func fingerprint() -> String {
            KeyRing.fingerprint(KeyRing.hash(of: "token-cache sealing key", under: key))
        }
    }

    /// Makes row keys from unique ids; never changes during the life of a store.
    package let index: SecretKey
    /// In the order of their numbers, never empty.
    package private(set) var keys: [NumberedKey]
    /// The key that seals.
    package let active: NumberedKey

    /// The possible numbers: the associated data has 32 bits for them.
    package static let numbers = 1...Int(UInt32.max)

    /// - Parameters:
    ///   - index: The index key.
    ///   - keys: At least one, with different numbers.
    ///   - active: The number of the key that seals; nil for the newest.
    package init(index: SecretKey, keys: [NumberedKey], active: Int? = nil) {
        precondition(!keys.isEmpty, "a key ring has a key")
        self.index = index
        self.keys = keys.sorted { $0.number < $1.number }
        let number = active ?? self.keys[keys.count - 1].number
        guard let active = keys.first(where: { $0.number == number }) else {
            preconditionFailure("the key that seals is in the ring")
        }
        self.active = active
    }

    /// A ring with one new key.
    package static func random(createdAt: Int64) -> KeyRing {
        KeyRing(index: .random(), keys: [NumberedKey(number: 1, createdAt: createdAt, key: .random())])
    }

    package var newest: NumberedKey { keys[keys.count - 1] }

    package func numberedKey(_ number: Int) -> NumberedKey? {
        keys.first { $0.number == number }
    }

    package func key(numbered number: Int) -> SecretKey? {
        numberedKey(number)?.key
    }

    /// A copy of the ring in which another key seals.
    package func activating(_ number: Int) -> KeyRing {
        KeyRing(index: index, keys: keys, active: number)
    }

    /// A copy of the ring without one key, which must be neither the newest nor the one that seals.
    package func removingKey(numbered number: Int) -> KeyRing {
        precondition(number != newest.number && number != active.number, "the newest key and the one that seals stay")
        return KeyRing(index: index, keys: keys.filter { $0.number != number }, active: active.number)
    }

    /// Identifies the ring, and is not secret: a constant's hash under the index key.
    package func identity() -> [UInt8] {
        Self.hash(of: "token-cache key ring", under: index)
    }

    /// The beginning of a hash that identifies a ring or a key, in hexadecimal.
    package static func fingerprint(_ hash: [UInt8]) -> String {
        Hexadecimal.text(Array(hash.prefix(8)))
    }

    private static func hash(of label: String, under key: SecretKey) -> [UInt8] {
        KeyedHash(key).mac(of: Array(label.utf8).span)
    }
}

/// The file format of a key ring: one key a line, numbers in decimal, keys in hexadecimal, `#` begins a comment.
///
///     index 9c1f...
///     1 1795000000 03ab...
///     2 1795100000 77d0...
///
/// The second word of a numbered key is the time when it was made, in seconds since 1970.
enum KeyRingText {
    /// An error in a line; does not contain the line, which may hold a key.
    struct Malformed: Error, Hashable {
        /// Counted from 1; 0 for the whole file.
        let line: Int
        let reason: String
    }

    private static let heading = """
        # The key ring of a token-cache store. Without it the tokens are lost; with it and the database they can be read.
        # Back it up, apart from the database, and change it with `token-cache keyring` only.

        """

    /// The text of a ring; the caller must wipe it.
    static func bytes(of ring: KeyRing) -> [UInt8] {
        // With enough capacity the array does not grow, which would leave copies of keys in memory.
        var bytes: [UInt8] = []
        bytes.reserveCapacity(heading.utf8.count + 160 * (ring.keys.count + 1))
        bytes += heading.utf8
        bytes += "index ".utf8
        append(ring.index, to: &bytes)
        for key in ring.keys {
            bytes += "\(key.number) \(key.createdAt) ".utf8
            append(key.key, to: &bytes)
        }
        return bytes
    }

    private static func append(_ key: SecretKey, to bytes: inout [UInt8]) {
        key.withBytes { Hexadecimal.append($0, to: &bytes) }
        bytes.append(UInt8(ascii: "\n"))
    }

    /// Reads a ring from its text.
    static func ring(of bytes: [UInt8]) throws(Malformed) -> KeyRing {
        var index: SecretKey?
        var keys: [KeyRing.NumberedKey] = []
        var number = 0
        for line in bytes.withoutByteOrderMark.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false) {
            number += 1
            let words = line.split { $0 == 0x20 || $0 == 0x09 || $0 == 0x0d }
            guard let first = words.first, first.first != UInt8(ascii: "#") else { continue }
            if first.elementsEqual("index".utf8) {
                guard index == nil else { throw Malformed(line: number, reason: "there are two index keys") }
                guard words.count == 2, let key = key(words[1]) else {
                    throw Malformed(line: number, reason: "expected: index KEY, the key in 64 hexadecimal digits")
                }
                index = key
            } else {
                let found = try numberedKey(words, line: number)
                guard !keys.contains(where: { $0.number == found.number }) else {
                    throw Malformed(line: number, reason: "there are two keys with the number \(found.number)")
                }
                keys.append(found)
            }
        }
        guard let index else { throw Malformed(line: 0, reason: "the index key is missing") }
        guard !keys.isEmpty else { throw Malformed(line: 0, reason: "there is no numbered key") }
        return KeyRing(index: index, keys: keys)
    }

    private static func numberedKey(
        _ words: [ArraySlice<UInt8>], line: Int
    ) throws(Malformed) -> KeyRing.NumberedKey {
        guard words.count == 3, let number = Int(String(decoding: words[0], as: UTF8.self)),
            KeyRing.numbers.contains(number), !words[..<2].contains(where: { $0.first == UInt8(ascii: "+") }),
            let createdAt = Int64(String(decoding: words[1], as: UTF8.self)),
            let key = key(words[2])
        else {
            throw Malformed(
                line: line, reason: "expected: NUMBER SECONDS KEY, the key in 64 hexadecimal digits"
            )
        }
        return KeyRing.NumberedKey(number: number, createdAt: createdAt, key: key)
    }

    private static func key(_ text: ArraySlice<UInt8>) -> SecretKey? {
        guard text.count == 2 * SecretKey.length, var bytes = Hexadecimal.decode(text) else { return nil }
        defer { SecretKey.wipe(&bytes) }
        return SecretKey(bytes.span)
    }
}
