import Cryptography
import Foundation
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct SealingTests {
    private func hex(_ text: String) -> [UInt8] {
        var (bytes, rest): ([UInt8], Substring) = ([], text[...])
        while !rest.isEmpty {
            bytes.append(UInt8(rest.prefix(2), radix: 16) ?? 0)
            rest = rest.dropFirst(2)
        }
        return bytes
    }

    private static let times = RowTimes(writtenAt: 1_795_000_000, expiresAt: nil)

    private func ring(_ numbers: [Int] = [1]) throws -> KeyRing {
        KeyRing(
            index: .random(),
            keys: numbers.map { .init(number: $0, createdAt: 1_795_000_000, key: .random()) }
        )
    }

    private func open(
        _ value: [UInt8], _ number: Int, _ rowKey: [UInt8], _ times: RowTimes = Self.times, with ring: KeyRing
    ) throws(SealingError) -> Token {
        var sealer = TokenSealer(ring)
        var text: [UInt8] = []
        try sealer.open(value.span, keyNumber: number, rowKey: rowKey.span, times: times, into: &text)
        let (id, info) = TokenSealer.split(text)
        return Token(id: Array(text[id]), info: Array(text[info]))
    }

    @Test(
        "the cipher is XAES-256-GCM",
        arguments: [
            // The vectors of C2SP's specification, for either value of the bit that is carried when the subkey is doubled.
            (UInt8(1), "", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
            (3, "c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),
        ]
    )
    func cipher(byte: UInt8, associated: String, expected: String) throws {
        let cipher = TokenCipher(SecretKey([UInt8](repeating: byte, count: 32).span))
        let (nonce, text) = (Array("ABCDEFGHIJKLMNOPQRSTUVWX".utf8), Array("XAES-256-GCM".utf8))
        for split in [0, 1, text.count] {
            var sealed: [UInt8] = []
            cipher.seal(
                Array(text[..<split]).span, Array(text[split...]).span, nonce: nonce.span,
                associated: Array(associated.utf8).span, into: &sealed
            )
            #expect(sealed == nonce + hex(expected))
            var opened: [UInt8] = []
            let isGenuine = cipher.open(sealed.span, associated: Array(associated.utf8).span, into: &opened)
            #expect(isGenuine && opened == text)
        }
    }

    @Test("what was sealed opens again, whatever its length, and never looks the same twice")
    func roundTrip() throws {
        let ring = try ring([1, 7])
        var sealer = TokenSealer(ring)
        var values = Set<[UInt8]>()
        for (id, length) in [("me", 0), ("me", 1), (String(repeating: "i", count: 1_024), 330), ("é", 1 << 20)] {
            let rowKey = [UInt8](repeating: 9, count: 32)
            let info = (0..<length).map { UInt8(truncatingIfNeeded: $0) }
            for _ in 0..<100 where length < 1_000 || values.count < 302 {
                let value = sealer.seal(info.span, id: Array(id.utf8).span, rowKey: rowKey.span, times: Self.times)
                #expect(values.insert(value).inserted)
                #expect(value.count == TokenSealer.overhead + id.utf8.count + length)
                #expect(try open(value, 7, rowKey, with: ring) == Token(id: Array(id.utf8), info: info))
            }
        }
    }

    @Test("a change of any byte is noticed")
    func tampering() throws {
        let ring = try ring()
        var sealer = TokenSealer(ring)
        let rowKey = [UInt8](repeating: 9, count: 32)
        let value = sealer.seal(
            Array("hello".utf8).span, id: Array("me".utf8).span, rowKey: rowKey.span, times: Self.times)
        for index in value.indices {
            for bit in [0, 3, 7] {
                var changed = value
                changed[index] ^= 1 << UInt8(bit)
                #expect(throws: SealingError.tampered(keyNumber: 1)) {
                    try open(changed, 1, rowKey, with: ring)
                }
            }
        }
        for length in 0..<value.count {
            #expect(throws: SealingError.self) { try open(Array(value[..<length]), 1, rowKey, with: ring) }
        }
        #expect(throws: SealingError.tampered(keyNumber: 1)) { try open(value + [0], 1, rowKey, with: ring) }
    }

    @Test("a value opens in its own row alone, under its own key alone")
    func moving() throws {
        let ring = try ring([1, 2])
        var sealer = TokenSealer(ring)
        let rowKey = [UInt8](repeating: 9, count: 32)
        let value = sealer.seal(
            Array("hello".utf8).span, id: Array("me".utf8).span, rowKey: rowKey.span, times: Self.times)
        #expect(throws: SealingError.tampered(keyNumber: 2)) {
            try open(value, 2, [UInt8](repeating: 8, count: 32), with: ring)
        }
        #expect(throws: SealingError.tampered(keyNumber: 1)) { try open(value, 1, rowKey, with: ring) }
        #expect(throws: SealingError.missingKey(number: 3)) { try open(value, 3, rowKey, with: ring) }
        #expect(throws: SealingError.missingKey(number: -1)) { try open(value, -1, rowKey, with: ring) }
        #expect(throws: SealingError.tampered(keyNumber: 2)) { try open(value, 2, rowKey, with: self.ring([1, 2])) }
    }

    @Test("a value opens with its own times alone")
    func times() throws {
        let ring = try ring()
        let rowKey = [UInt8](repeating: 9, count: 32)
        let all = [
            RowTimes(writtenAt: 0, expiresAt: nil), RowTimes(writtenAt: 0, expiresAt: 0),
            RowTimes(writtenAt: 1, expiresAt: nil), RowTimes(writtenAt: 1, expiresAt: 1),
            RowTimes(writtenAt: 1 << 40, expiresAt: -1), RowTimes(writtenAt: .min, expiresAt: .max),
        ]
        for times in all {
            var sealer = TokenSealer(ring)
            let value = sealer.seal(
                Array("hello".utf8).span, id: Array("me".utf8).span, rowKey: rowKey.span, times: times)
            for other in all where other != times {
                #expect(throws: SealingError.tampered(keyNumber: 1)) { try open(value, 1, rowKey, other, with: ring) }
            }
            #expect(try open(value, 1, rowKey, times, with: ring).info == Array("hello".utf8))
        }
    }
}
