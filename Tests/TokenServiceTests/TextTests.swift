import TestSupport
import Testing

@testable import TokenService

@Suite struct JSONTextTests {
    private func escaped(_ bytes: [UInt8]) -> String {
        var output: [UInt8] = []
        JSONText.appendEscaped(bytes, to: &output)
        return String(decoding: output, as: UTF8.self)
    }

    @Test(
        "characters are escaped as json_encode does",
        arguments: [
            ("a\"b\\c/d", #"a\"b\\c\/d"#), ("\u{8}\u{c}\n\r\t", #"\b\f\n\r\t"#),
            ("\0\u{1f}\u{7f}", "\\u0000\\u001f\u{7f}"),
            ("é€\u{2028}\u{feff}\u{ffff}", #"\u00e9\u20ac\u2028\ufeff\uffff"#),
            ("😀\u{10ffff}", #"\ud83d\ude00\udbff\udfff"#),
        ]
    )
    func table(input: String, output: String) {
        #expect(escaped(Array(input.utf8)) == output)
    }

    @Test("bytes that are not UTF-8 become replacement characters")
    func malformed() {
        for bytes: [UInt8] in [[0xff], [0xc0], [0x80], [0xc3], [0xf5]] { #expect(escaped(bytes) == #"\ufffd"#) }
        #expect(escaped([0xed, 0xa0, 0x80]) == #"\ufffd\ufffd\ufffd"#)
        #expect(escaped([0xc0, 0x80, 0x61]) == #"\ufffd\ufffda"#)
        #expect(escaped([0xe2, 0x82]) == #"\ufffd"#)
    }

    /// One byte at a time, as the table above has it.
    private func escapedOneByOne(_ text: String) -> String {
        var output = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"", "\\", "/": output += "\\\(scalar)"
            case "\u{8}": output += "\\b"
            case "\u{c}": output += "\\f"
            case "\n": output += "\\n"
            case "\r": output += "\\r"
            case "\t": output += "\\t"
            case "\u{20}"..."\u{7f}": output.unicodeScalars.append(scalar)
            default:
                for unit in String(scalar).utf16 {
                    output += "\\u" + String(repeating: "0", count: 4 - String(unit, radix: 16).count)
                    output += String(unit, radix: 16)
                }
            }
        }
        return output
    }

    @Test(
        "long and short runs of every kind are escaped alike, wherever they begin", arguments: 0..<200 as Range<UInt64>)
    func runs(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let kinds: [ClosedRange<UInt32>] = [
            0x20...0x7f, 0x41...0x5a, 0...0x1f, 0x22...0x22, 0x2f...0x2f, 0x80...0x7ff, 0x800...0xffff,
            0x10000...0x10ffff,
        ]
        var text = ""
        for _ in 0..<12 {
            guard let kind = kinds.randomElement(using: &random) else { return }
            for _ in 0..<Int.random(in: 0...70, using: &random) {
                if let scalar = Unicode.Scalar(UInt32.random(in: kind, using: &random)) {
                    text.unicodeScalars.append(scalar)
                }
            }
        }
        let expected = escapedOneByOne(text)
        #expect(escaped(Array(text.utf8)) == expected)
        let length = JSONText.escapedLength(of: Array(text.utf8).span)
        #expect(length == expected.utf8.count)
    }

    @Test("the escaped length is right for any bytes", arguments: 0..<200 as Range<UInt64>)
    func lengthOfAnything(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let bytes = (0..<Int.random(in: 0...9_000, using: &random)).map { _ in UInt8.random(in: 0...255, using: &random)
        }
        let length = JSONText.escapedLength(of: bytes.span)
        #expect(length == escaped(bytes).utf8.count)
    }
}

@Suite struct LongAnswerTests {
    @Test(
        "the pieces are the whole answer",
        arguments: ["x", "\u{1}", "\u{e9}/", "\u{1f600}x"], [1, 16_384, 16_387, 300_000])
    func pieces(text: String, count: Int) {
        // Also cut within a character.
        let tokenInfo = Array(String(repeating: text, count: count).utf8.prefix(count))
        check(tokenInfo)
    }

    @Test("bytes that are not UTF-8 come in pieces as in one", arguments: 0..<40 as Range<UInt64>)
    func anything(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let kinds: [UInt8] = [0xc2, 0xe0, 0xe1, 0xf0, 0xf1, 0x80, 0x90, 0xa0, 0xbf]
        var tokenInfo = [UInt8](repeating: seed.isMultiple(of: 2) ? 0x41 : 0x80, count: 140_000)
        for end in stride(from: 16_384, to: tokenInfo.count - 16, by: 16_384) {
            for index in end - 16..<end + 16 { tokenInfo[index] = kinds.randomElement(using: &random) ?? 0 }
        }
        check(tokenInfo)
    }

    private func check(_ tokenInfo: [UInt8]) {
        var whole: [UInt8] = []
        FoundAnswer.append(tokenInfo, to: &whole)
        var answer = LongAnswer(tokenInfo)
        var steps = 1
        while !answer.measure() { steps += 1 }
        // A long one is not measured in one step.
        #expect(steps == 1 + tokenInfo.count / (256 << 10))
        var pieces: [UInt8] = []
        while !answer.isComplete {
            let start = pieces.count
            answer.appendPiece(to: &pieces)
            #expect(pieces.count - start <= 6 * 16_384 + 64)
        }
        let isSame = pieces == whole && answer.length == whole.count
        #expect(isSame)
    }
}
