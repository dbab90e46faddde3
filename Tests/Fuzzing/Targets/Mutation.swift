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
