internal import Cryptography
internal import System

/// The file format of a key ring: one key a line, numbers in decimal, keys in hexadecimal, `#` begins a comment.
///
///     index 9c1f...
///     1 1795000000 03ab...
///     2 1795100000 77d0...
///
/// The second word of a numbered key is when it was made, in seconds since 1970.
enum KeyRingText {
    /// An error in a line; does not contain the line, which may hold a key.
    struct Malformed: Error, Hashable {
        /// From 1; 0 for the file as a whole.
        let line: Int
        let reason: String
    }

    private static let heading = """
        # The key ring of a token-cache store. Without it the tokens are lost; with it and the database they can be read.
        # Back it up, apart from the database, and change it with `token-cache keys` only.

        """

    /// The text; the caller wipes it.
    static func bytes(of ring: KeyRing) -> [UInt8] {
        // Enough capacity, so that growing leaves no copies in memory.
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
        key.withBytes { key in
            for index in key.indices {
                bytes.append(digits[Int(key[index] >> 4)])
                bytes.append(digits[Int(key[index] & 15)])
            }
        }
        bytes.append(UInt8(ascii: "\n"))
    }

    private static let digits = Array("0123456789abcdef".utf8)

    /// Reads a ring out of the text.
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
        guard text.count == 2 * SecretKey.length else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(SecretKey.length)
        defer { SecretKey.wipe(&bytes) }
        var high: UInt8?
        for character in text {
            guard let digit = digit(character) else { return nil }
            if let first = high.take() { bytes.append(first << 4 | digit) } else { high = digit }
        }
        return SecretKey(bytes.span)
    }

    private static func digit(_ character: UInt8) -> UInt8? {
        switch character {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): character - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): character - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): character - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}
