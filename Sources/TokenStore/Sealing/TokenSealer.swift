internal import COpenSSL

/// Seals tokens and opens them again.
///
/// A sealed value is one byte for its form, a random nonce, AES-256-GCM over the unique id (its length in two bytes, big
/// endian, before it) and the token info, and the tag. The associated data are the form, the key's number in four bytes
/// and the row's key: a value moved to another row, or said to be of another key, does not open.
///
/// Used by one thread at a time.
struct TokenSealer: ~Copyable {
    let ring: KeyRing
    /// Of the newest key.
    private let seals: SealCount
    private let sealing: TokenCipher
    /// Made when first needed.
    private var opening: [Int: TokenCipher] = [:]
    private var nonces: [UInt8] = []
    private var usedNonces = 0
    private var associated: [UInt8] = []
    private var prefix: [UInt8] = []

    private static let form: UInt8 = 1
    /// The generator is asked for this many nonces at a time: most of its cost is per call.
    private static let nonceBatch = 64
    /// Bytes of a sealed value beyond the unique id and the token info.
    static let overhead = 1 + TokenCipher.nonceLength + 2 + TokenCipher.tagLength

    /// - Parameter seals: Counts what the newest key seals.
    init(_ ring: KeyRing, _ seals: SealCount) throws(SealingError) {
        let sealing = try TokenCipher(ring.newest.key, .sealing)
        self.ring = ring
        self.seals = seals
        self.sealing = sealing
    }

    /// Seals a token with the newest key, whose number is `ring.newest.number`.
    mutating func seal(_ tokenInfo: Span<UInt8>, id: Span<UInt8>, rowKey: Span<UInt8>) throws(SealingError) -> [UInt8] {
        precondition(id.count <= Int(UInt16.max), "the length of an id takes two bytes")
        _ = try seals.take()
        var value: [UInt8] = []
        value.reserveCapacity(Self.overhead + id.count + tokenInfo.count)
        value.append(Self.form)
        prefix.removeAll(keepingCapacity: true)
        prefix.append(UInt8(id.count >> 8))
        prefix.append(UInt8(id.count & 0xff))
        prefix.append(span: id)
        setAssociated(keyNumber: ring.newest.number, rowKey: rowKey)
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
    ///   - text: Replaced by the text; `split` tells where in it what lies.
    mutating func open(
        _ value: Span<UInt8>, keyNumber: Int, rowKey: Span<UInt8>, into text: inout [UInt8]
    ) throws(SealingError) {
        text.removeAll(keepingCapacity: true)
        guard value.count >= Self.overhead, value[0] == Self.form else { throw .malformed }
        let cipher = try cipher(numbered: keyNumber)
        setAssociated(keyNumber: keyNumber, rowKey: rowKey)
        let sealed = value.extracting(droppingFirst: 1)
        guard cipher.open(sealed, associated: associated.span, into: &text) else {
            throw .tampered(keyNumber: keyNumber)
        }
        guard Self.idLength(of: text) <= text.count - 2 else { throw .malformed }
    }

    /// Where the id and the token info lie in an opened text.
    static func split(_ text: [UInt8]) -> (id: Range<Int>, tokenInfo: Range<Int>) {
        let end = 2 + idLength(of: text)
        return (2..<end, end..<text.count)
    }

    private static func idLength(of text: [UInt8]) -> Int {
        Int(text[0]) << 8 | Int(text[1])
    }

    private mutating func cipher(numbered number: Int) throws(SealingError) -> TokenCipher {
        if let cipher = opening[number] { return cipher }
        guard let key = ring.key(numbered: number) else { throw .missingKey(number: number) }
        let cipher = try TokenCipher(key, .opening)
        opening[number] = cipher
        return cipher
    }

    private mutating func setAssociated(keyNumber: Int, rowKey: Span<UInt8>) {
        associated.removeAll(keepingCapacity: true)
        associated.append(Self.form)
        // Whatever a damaged row claims; a number that no key has was refused before.
        let number = UInt32(truncatingIfNeeded: keyNumber)
        for shift in [24, 16, 8, 0] { associated.append(UInt8(truncatingIfNeeded: number >> shift)) }
        associated.append(span: rowKey)
    }

    /// Where in `nonces` the next one is; each is given once.
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

extension [UInt8] {
    /// Appends bytes that `body` writes, all of them or, when it returns false, none.
    ///
    /// - Parameters:
    ///   - added: How many, at least 0.
    ///   - body: Is given the place for them, and writes there only.
    mutating func append(count added: Int, writing body: (UnsafeMutablePointer<UInt8>) -> Bool) -> Bool {
        var isWritten = false
        // Also for nothing there has to be a place.
        append(addingCapacity: Swift.max(added, 1)) { output in
            unsafe output.withUnsafeMutableBufferPointer { room, count in
                precondition(room.count >= added, "there is as much room as was asked for")
                isWritten = unsafe room.baseAddress.map { unsafe body($0) } ?? false
                count = isWritten ? added : 0
            }
        }
        return isWritten
    }

    /// Appends bytes that are lent.
    mutating func append(span: Span<UInt8>) {
        unsafe span.withUnsafeBufferPointer { unsafe append(contentsOf: $0) }
    }
}
