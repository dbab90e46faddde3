import COpenSSL
import Cryptography

/// Seals tokens and opens them again.
///
/// A sealed value is a random nonce, XAES-256-GCM over the unique id (its length in two bytes before it) and the token info, and
/// the tag. The associated data are the key's number in four bytes, the row's times in seventeen, both big endian, and the row's
/// key: a value that was moved to another row, or has other times or another key's number, does not open.
///
/// A whole row that was replaced by an earlier version of itself, times included, is not noticed: it was sealed for that place.
///
/// Used by one thread at a time.
package struct TokenSealer: ~Copyable {
    let ring: KeyRing
    private let sealing: TokenCipher
    /// Those of other keys, created when first needed.
    private var opening: [Int: TokenCipher] = [:]
    private var nonce = [UInt8](repeating: 0, count: TokenCipher.nonceLength)
    /// The first half of the next nonces, and their second halves.
    private var nonceHalves: [UInt8] = []
    private var usedBytes = 0
    private var associated: [UInt8] = []
    private var prefix: [UInt8] = []

    /// So many nonces share their first half, and with it the derived key.
    ///
    /// Both halves are random, so no nonce is used twice.
    private static let nonceBatch = 64
    /// Bytes of a sealed value beyond the unique id and the token info.
    package static let overhead = TokenCipher.nonceLength + 2 + TokenCipher.tagLength

    /// Bytes of the longest id, whose length takes two bytes.
    static let longestID = Int(UInt16.max)

    package init(_ ring: KeyRing) {
        self.ring = ring
        sealing = TokenCipher(ring.active.key)
    }

    /// Seals a token with the key whose number is `ring.active.number`.
    package mutating func seal(
        _ tokenInfo: Span<UInt8>, id: Span<UInt8>, rowKey: Span<UInt8>, times: RowTimes
    ) -> [UInt8] {
        precondition(id.count <= Self.longestID, "the length of an id takes two bytes")
        var value: [UInt8] = []
        value.reserveCapacity(Self.overhead + id.count + tokenInfo.count)
        prefix.removeAll(keepingCapacity: true)
        prefix.append(UInt8(id.count >> 8))
        prefix.append(UInt8(id.count & 0xff))
        prefix.append(span: id)
        setAssociated(keyNumber: ring.active.number, times, rowKey)
        renewNonce()
        sealing.seal(
            prefix.span, tokenInfo, nonce: nonce.span, associated: associated.span, into: &value
        )
        return value
    }

    /// Opens a value.
    ///
    /// - Parameters:
    ///   - value: What `seal` gave.
    ///   - keyNumber: The key that it was sealed with.
    ///   - rowKey: The key of the row it was found in.
    ///   - times: Those of the row.
    ///   - text: Replaced by the text; `split` tells where in it what lies.
    package mutating func open(
        _ value: Span<UInt8>, keyNumber: Int, rowKey: Span<UInt8>, times: RowTimes, into text: inout [UInt8]
    ) throws(SealingError) {
        text.removeAll(keepingCapacity: true)
        guard value.count >= Self.overhead else { throw .malformed }
        let cipher = try cipher(numbered: keyNumber)
        setAssociated(keyNumber: keyNumber, times, rowKey)
        guard cipher.open(value, associated: associated.span, into: &text) else {
            throw .tampered(keyNumber: keyNumber)
        }
        guard Self.idLength(of: text) <= text.count - 2 else { throw .malformed }
    }

    /// The ranges of the id and the token info in a decrypted text.
    package static func split(_ text: [UInt8]) -> (id: Range<Int>, tokenInfo: Range<Int>) {
        let end = 2 + idLength(of: text)
        return (2..<end, end..<text.count)
    }

    private static func idLength(of text: [UInt8]) -> Int {
        Int(text[0]) << 8 | Int(text[1])
    }

    private mutating func cipher(numbered number: Int) throws(SealingError) -> TokenCipher {
        if number == ring.active.number { return sealing }
        if let known = opening[number] { return known }
        guard let key = ring.key(numbered: number) else { throw .missingKey(number: number) }
        let new = TokenCipher(key)
        opening[number] = new
        return new
    }

    private mutating func setAssociated(keyNumber: Int, _ times: RowTimes, _ rowKey: Span<UInt8>) {
        associated.removeAll(keepingCapacity: true)
        _ = unsafe associated.append(count: 21) { start in
            let place = UnsafeMutableRawPointer(start)
            // Never loses bits of an existing key's number; others were refused before.
            unsafe place.storeBytes(of: UInt32(truncatingIfNeeded: keyNumber).bigEndian, as: UInt32.self)
            unsafe place.storeBytes(of: times.writtenAt.bigEndian, toByteOffset: 4, as: Int64.self)
            unsafe place.storeBytes(of: times.expiresAt == nil ? 0 : 1, toByteOffset: 12, as: UInt8.self)
            unsafe place.storeBytes(of: (times.expiresAt ?? 0).bigEndian, toByteOffset: 13, as: Int64.self)
            return true
        }
        associated.append(span: rowKey)
    }

    private mutating func renewNonce() {
        let half = TokenCipher.nonceLength / 2
        if usedBytes == nonceHalves.count {
            (nonceHalves, usedBytes) = (RandomBytes.published((Self.nonceBatch + 1) * half), half)
            for index in 0..<half { nonce[index] = nonceHalves[index] }
        }
        for index in 0..<half { nonce[half + index] = nonceHalves[usedBytes + index] }
        usedBytes += half
    }
}

/// Why a value cannot be sealed or opened.
///
/// Says nothing of the value itself.
package enum SealingError: Error, Hashable, CustomStringConvertible {
    /// The key ring has no key of the number that the row was sealed with.
    case missingKey(number: Int)
    /// The row was changed or moved after it was sealed, or was sealed under another key.
    case tampered(keyNumber: Int)
    /// The row is shorter than any sealed row, or its text is not an id and a token info.
    case malformed
    /// Nothing may be sealed at present, as the text says.
    case refused(String)
    /// The row is not in one of the slots of its key.
    case misplaced

    package var description: String {
        switch self {
        case .missingKey(let number):
            "a row is sealed with key \(number), which the key ring does not have; put that key back"
        case .tampered(let number):
            "a row does not open with key \(number): it was changed, or key \(number) is not the one that sealed it"
        case .malformed: "a row is not in the sealed form"
        case .refused(let reason): reason
        case .misplaced: "a row is not where its id is looked for: it was moved, or its key was changed"
        }
    }
}
