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
            index: try .random(),
            keys: try numbers.map { .init(number: $0, createdAt: 1_795_000_000, key: try .random()) }
        )
    }

    private func open(
        _ value: [UInt8], _ number: Int, _ rowKey: [UInt8], _ times: RowTimes = Self.times, with ring: KeyRing
    ) throws(SealingError) -> Token {
        var sealer = try TokenSealer(ring, SealCount(keyNumber: ring.newest.number))
        var text: [UInt8] = []
        try sealer.open(value.span, keyNumber: number, rowKey: rowKey.span, times: times, into: &text)
        let (id, info) = TokenSealer.split(text)
        return Token(id: Array(text[id]), info: Array(text[info]))
    }

    @Test("the cipher is AES-256-GCM")
    func cipher() throws {
        // The Galois/Counter Mode of Operation (McGrew, Viega), test case 16.
        let key = SecretKey(hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308").span)
        let nonce = hex("cafebabefacedbaddecaf888")
        let text = hex(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
        )
        let associated = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
        let expected = hex(
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b"
        )
        for split in [0, 1, 33, text.count] {
            var sealed: [UInt8] = []
            try TokenCipher(key, .sealing).seal(
                Array(text[..<split]).span, Array(text[split...]).span, nonce: nonce.span, associated: associated.span,
                into: &sealed
            )
            #expect(sealed == nonce + expected)
            var opened: [UInt8] = []
            let isGenuine = try TokenCipher(key, .opening).open(
                sealed.span, associated: associated.span, into: &opened)
            #expect(isGenuine && opened == text)
        }
    }

    @Test("what was sealed opens again, whatever its length, and never looks the same twice")
    func roundTrip() throws {
        let ring = try ring([1, 7])
        var sealer = try TokenSealer(ring, SealCount(keyNumber: ring.newest.number))
        var values = Set<[UInt8]>()
        for (id, length) in [("me", 0), ("me", 1), (String(repeating: "i", count: 1_024), 330), ("é", 1 << 20)] {
            let rowKey = [UInt8](repeating: 9, count: 32)
            let info = (0..<length).map { UInt8(truncatingIfNeeded: $0) }
            for _ in 0..<100 where length < 1_000 || values.count < 302 {
                let value = try sealer.seal(info.span, id: Array(id.utf8).span, rowKey: rowKey.span, times: Self.times)
                #expect(values.insert(value).inserted)
                #expect(value.count == TokenSealer.overhead + id.utf8.count + length)
                #expect(try open(value, 7, rowKey, with: ring) == Token(id: Array(id.utf8), info: info))
            }
        }
    }

    @Test("a change of any byte is noticed")
    func tampering() throws {
        let ring = try ring()
        var sealer = try TokenSealer(ring, SealCount(keyNumber: ring.newest.number))
        let rowKey = [UInt8](repeating: 9, count: 32)
        let value = try sealer.seal(
            Array("hello".utf8).span, id: Array("me".utf8).span, rowKey: rowKey.span, times: Self.times)
        for index in value.indices {
            for bit in [0, 3, 7] {
                var changed = value
                changed[index] ^= 1 << UInt8(bit)
                #expect(throws: index == 0 ? SealingError.malformed : .tampered(keyNumber: 1)) {
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
        var sealer = try TokenSealer(ring, SealCount(keyNumber: ring.newest.number))
        let rowKey = [UInt8](repeating: 9, count: 32)
        let value = try sealer.seal(
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
            var sealer = try TokenSealer(ring, SealCount(keyNumber: 1))
            let value = try sealer.seal(
                Array("hello".utf8).span, id: Array("me".utf8).span, rowKey: rowKey.span, times: times)
            for other in all where other != times {
                #expect(throws: SealingError.tampered(keyNumber: 1)) { try open(value, 1, rowKey, other, with: ring) }
            }
            #expect(try open(value, 1, rowKey, times, with: ring).info == Array("hello".utf8))
        }
    }

    @Test("each value has the number of its seal")
    func numbers() throws {
        let ring = try ring()
        let count = SealCount(keyNumber: 1)
        var sealer = try TokenSealer(ring, count)
        let rowKey = [UInt8](repeating: 9, count: 32)
        let cases: [(taken: Int64, expected: UInt32)] = [
            (0, 0), (0, 1), (0x0102_0304, 0x0102_0304), (SealCounts.limit - 1, .max),
        ]
        for (taken, expected) in cases {
            count.raise(to: taken)
            let value = try sealer.seal(
                [UInt8]().span, id: Array("me".utf8).span, rowKey: rowKey.span, times: Self.times)
            #expect(try TokenSealer.number(of: value.span) == expected)
        }
    }

    @Test("the form of earlier versions opens with keys that they have made, and with no other")
    func earlierForm() throws {
        let (old, new) = (try SecretKey.random(), try SecretKey.random())
        let ring = KeyRing(
            index: try .random(),
            keys: [
                .init(number: 1, createdAt: 1, key: old, bindsTimes: false), .init(number: 2, createdAt: 2, key: new),
            ]
        )
        let rowKey = [UInt8](repeating: 9, count: 32)
        let me = Token(id: Array("me".utf8), info: Array("hello".utf8))
        for times in [Self.times, RowTimes(writtenAt: 7, expiresAt: 8)] {
            let value = try EarlierForm.seal(me, rowKey: rowKey, keyNumber: 1, key: old)
            #expect(try open(value, 1, rowKey, times, with: ring) == me)
            #expect(throws: SealingError.tampered(keyNumber: 1)) { try open(value, 1, [9], times, with: ring) }
            let forged = try EarlierForm.seal(me, rowKey: rowKey, keyNumber: 2, key: new)
            #expect(throws: SealingError.tampered(keyNumber: 2)) { try open(forged, 2, rowKey, times, with: ring) }
        }
        // What an old key seals now is bound all the same.
        let first = KeyRing(index: ring.index, keys: [ring.keys[0]])
        var sealer = try TokenSealer(first, SealCount(keyNumber: 1))
        let value = try sealer.seal(me.info.span, id: me.id.span, rowKey: rowKey.span, times: Self.times)
        #expect(try open(value, 1, rowKey, with: ring) == me)
        #expect(throws: SealingError.tampered(keyNumber: 1)) {
            try open(value, 1, rowKey, RowTimes(writtenAt: 7, expiresAt: nil), with: ring)
        }
        // Without its number and said to be of the earlier form, it is not.
        let forged = [1] + value.dropFirst(5)
        #expect(throws: SealingError.tampered(keyNumber: 1)) { try open(forged, 1, rowKey, with: ring) }
    }
}
