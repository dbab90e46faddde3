internal import COpenSSL
internal import Cryptography

/// Seals tokens and opens them again.
///
/// A sealed value is one byte for its form, the number of the seal, less one, in four bytes, a random nonce,
/// AES-256-GCM over the unique id (its length in two bytes before it) and the token info, and the tag. Numbers are big
/// endian. The associated data are the form, the key's number in four bytes, that of the seal, the row's times in
/// seventeen bytes, and the row's key: a value that was moved to another row, or has other times or another key's
/// number, does not open.
///
/// No two values of a key have the same number. A whole row that was replaced by an earlier version of itself, times
/// included, is not noticed: it was sealed for that place.
///
/// Versions up to schema 3 wrote form 1: without a number, and with neither number nor times in the associated data. Such
/// values open only with keys that those versions made. Once these keys are retired, no row can be passed off as form 1.
///
/// Used by one thread at a time.
package struct TokenSealer: ~Copyable {
    package let ring: KeyRing
    /// Of the key that seals.
    private let seals: SealCount
    private let sealing: TokenCipher
    /// Created when first needed.
    private var opening: [Int: (cipher: TokenCipher, bindsTimes: Bool)] = [:]
    private var nonces: [UInt8] = []
    private var usedNonces = 0
    private var associated: [UInt8] = []
    private var prefix: [UInt8] = []

    private static let form: UInt8 = 2
    private static let earlierForm: UInt8 = 1
    private static let numberLength = 4
    /// Nonces are generated this many at a time, as most of the cost is per call.
    private static let nonceBatch = 64
    /// Bytes of a sealed value beyond the unique id and the token info.
    package static let overhead = numberLength + earlierOverhead
    private static let earlierOverhead = 1 + TokenCipher.nonceLength + 2 + TokenCipher.tagLength

    /// - Parameter seals: Counts what the ring's active key seals.
    package init(_ ring: KeyRing, _ seals: SealCount) throws(SealingError) {
        let sealing = try TokenCipher(ring.active.key, .sealing)
        self.ring = ring
        self.seals = seals
        self.sealing = sealing
    }

    /// Seals a token with the key whose number is `ring.active.number`.
    package mutating func seal(
        _ tokenInfo: Span<UInt8>, id: Span<UInt8>, rowKey: Span<UInt8>, times: RowTimes
    ) throws(SealingError) -> [UInt8] {
        precondition(id.count <= Int(UInt16.max), "the length of an id takes two bytes")
        let number = UInt32(truncatingIfNeeded: try seals.take() - 1)
        var value: [UInt8] = []
        value.reserveCapacity(Self.overhead + id.count + tokenInfo.count)
        value.append(Self.form)
        value.append(UInt8(number >> 24))
        value.append(UInt8(truncatingIfNeeded: number >> 16))
        value.append(UInt8(truncatingIfNeeded: number >> 8))
        value.append(UInt8(truncatingIfNeeded: number))
        prefix.removeAll(keepingCapacity: true)
        prefix.append(UInt8(id.count >> 8))
        prefix.append(UInt8(id.count & 0xff))
        prefix.append(span: id)
        setAssociated(keyNumber: ring.active.number, number, times)
        associated.append(span: rowKey)
        let nonce = try takeNonce()
        try sealing.seal(
            prefix.span, tokenInfo, nonce: nonces.span.extracting(nonce), associated: associated.span, into: &value
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
        let number = try Self.number(of: value)
        let (cipher, bindsTimes) = try cipher(numbered: keyNumber)
        var start = 1
        if let number {
            setAssociated(keyNumber: keyNumber, number, times)
            start += Self.numberLength
        } else {
            guard !bindsTimes else { throw .tampered(keyNumber: keyNumber) }
            setEarlierAssociated(keyNumber: keyNumber)
        }
        associated.append(span: rowKey)
        guard cipher.open(value.extracting(droppingFirst: start), associated: associated.span, into: &text) else {
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

    /// The number of the seal that made a value, less one; nil for one of the earlier form, which has none.
    package static func number(of value: Span<UInt8>) throws(SealingError) -> UInt32? {
        if value.count >= overhead, value[0] == form {
            return UInt32(value[1]) << 24 | UInt32(value[2]) << 16 | UInt32(value[3]) << 8 | UInt32(value[4])
        }
        guard value.count >= earlierOverhead, value[0] == earlierForm else { throw .malformed }
        return nil
    }

    private mutating func cipher(
        numbered number: Int
    ) throws(SealingError) -> (cipher: TokenCipher, bindsTimes: Bool) {
        if let known = opening[number] { return known }
        guard let key = ring.numberedKey(number) else { throw .missingKey(number: number) }
        let new = (try TokenCipher(key.key, .opening), key.bindsTimes)
        opening[number] = new
        return new
    }

    /// Sets the associated data except the row's key.
    private mutating func setAssociated(keyNumber: Int, _ number: UInt32, _ times: RowTimes) {
        associated.removeAll(keepingCapacity: true)
        _ = unsafe associated.append(count: 26) { start in
            let place = UnsafeMutableRawPointer(start)
            unsafe place.storeBytes(of: Self.form, as: UInt8.self)
            unsafe place.storeBytes(of: Self.truncated(keyNumber).bigEndian, toByteOffset: 1, as: UInt32.self)
            unsafe place.storeBytes(of: number.bigEndian, toByteOffset: 5, as: UInt32.self)
            unsafe place.storeBytes(of: times.writtenAt.bigEndian, toByteOffset: 9, as: Int64.self)
            unsafe place.storeBytes(of: times.expiresAt == nil ? 0 : 1, toByteOffset: 17, as: UInt8.self)
            unsafe place.storeBytes(of: (times.expiresAt ?? 0).bigEndian, toByteOffset: 18, as: Int64.self)
            return true
        }
    }

    private mutating func setEarlierAssociated(keyNumber: Int) {
        associated.removeAll(keepingCapacity: true)
        associated.append(Self.earlierForm)
        for shift in [24, 16, 8, 0] {
            associated.append(UInt8(truncatingIfNeeded: Self.truncated(keyNumber) >> UInt32(shift)))
        }
    }

    /// Never loses bits of an existing key's number; others were refused before.
    private static func truncated(_ keyNumber: Int) -> UInt32 {
        UInt32(truncatingIfNeeded: keyNumber)
    }

    /// The range of the next nonce in `nonces`; each is used once.
    private mutating func takeNonce() throws(SealingError) -> Range<Int> {
        if usedNonces == nonces.count {
            (nonces, usedNonces) = ([UInt8](repeating: 0, count: Self.nonceBatch * TokenCipher.nonceLength), 0)
            guard unsafe RAND_bytes(&nonces, Int32(nonces.count)) == 1 else {
                nonces = []
                throw .library("RAND_bytes")
            }
        }
        defer { usedNonces += TokenCipher.nonceLength }
        return usedNonces..<(usedNonces + TokenCipher.nonceLength)
    }
}
