import Cryptography
import TestSupport
import TokenStore

extension FuzzTarget {
    /// The file of a key ring: what is read is what stands there, and is the same when it was written again.
    static let keyRings = FuzzTarget(
        "key-rings",
        words: [
            "index ", "#", "\n", "\r\n", " ", "\t", "1 ", "2 1795000000 ", "0", "00", "-1", "+1",
            "4294967295",
            "4294967296", "9223372036854775807", "0123456789abcdef", "ABCDEF", "\0", "\u{b}",
            "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b",
        ]
    ) { input in
        let file = KeyRingFile(path: Files.write(input, to: "keys"), credentials: nil, directory: "")
        let ring = try? file.load()
        let model = KeyRingModel(input)
        try compare(ring.map(described), model?.lines, "the key ring")
        guard let ring else { return }
        let copy = KeyRingFile(path: Files.folder.path + "/keys-copy", credentials: nil, directory: "")
        try copy.save(ring)
        try compare(try copy.load().map(described), described(ring), "the key ring that was written again")
    }

    /// The keys in the order of their numbers, the index key first.
    private static func described(_ ring: KeyRing) -> [String] {
        func hexadecimal(_ bytes: Span<UInt8>) -> String {
            bytes.indices.map { (bytes[$0] < 16 ? "0" : "") + String(bytes[$0], radix: 16) }.joined()
        }
        return ["index " + ring.index.withBytes { hexadecimal($0) }]
            + ring.keys.map { key in
                "\(key.number) \(key.createdAt) \(key.key.withBytes { hexadecimal($0) })"
            }
    }
}

/// The lines of a key ring; nil if it is malformed.
private struct KeyRingModel {
    private(set) var lines: [String]

    init?(_ input: [UInt8]) {
        let lines = input.text.split(separator: "\n").map { line in
            line.split { " \t\r".unicodeScalars.contains($0) }
        }.filter { $0.first.map { $0.first != "#" } ?? false }
        let indexLines = lines.filter { $0[0].string == "index" }
        let keyLines = lines.filter { $0[0].string != "index" }
        guard indexLines.count == 1, indexLines[0].count == 2, !keyLines.isEmpty, Self.isKey(indexLines[0][1]) else {
            return nil
        }
        var keys: [Int: String] = [:]
        for words in keyLines {
            guard words.count == 3, words[0].isDigits, let number = Int(words[0].string), number > 0, number < 1 << 32,
                words[1].isDigits || words[1].first == "-" && words[1].dropFirst().isDigits,
                let time = Int64(words[1].string), Self.isKey(words[2]), keys[number] == nil
            else { return nil }
            keys[number] = "\(number) \(time) \(words[2].lowercased)"
        }
        self.lines = ["index " + indexLines[0][1].lowercased] + keys.sorted { $0.key < $1.key }.map(\.value)
    }

    private static func isKey(_ word: Text) -> Bool { word.count == 64 && word.allSatisfy(\.isHexadecimal) }
}
