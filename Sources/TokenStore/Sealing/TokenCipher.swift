import COpenSSL
import Cryptography

/// XAES-256-GCM under one key (C2SP, XAES-256-GCM).
///
/// Each text is encrypted with AES-256-GCM under a key of its own, which is derived from this key and the first half of
/// the nonce. Random nonces of 192 bits do not repeat, so nobody has to count how often a key has sealed. With AES-GCM
/// alone, whose nonces have 96 bits, a key may seal only 2^32 texts (NIST SP 800-38D, section 8.3).
///
/// Used by one thread at a time.
@safe final class TokenCipher {
    static let nonceLength = 24
    static let tagLength = 16

    /// AES-256 of single blocks under this key, which makes the derived keys.
    private let derivation: CipherContext
    /// AES-256-GCM, which gets a new derived key when a nonce's first half differs from the previous one's.
    private let sealing: CipherContext
    private let opening: CipherContext
    /// The two blocks whose encryption is the derived key (NIST SP 800-108, KDF in counter mode with CMAC), without the nonce.
    ///
    /// Words, whose bytes are in memory in the order in which they are encrypted. Not an array, because the compiler
    /// checks each access to an array in a class.
    private var blocks = SIMD8<UInt32>()

    init(_ key: SecretKey) {
        derivation = CipherContext("AES-256-ECB", key)
        sealing = CipherContext("AES-256-GCM", nil)
        opening = CipherContext("AES-256-GCM", nil, encrypts: false)
        var zeros = SIMD8<UInt32>()
        guard unsafe withUnsafeMutableBytes(of: &zeros, { unsafe derive(SIMD8(), into: $0) }) else {
            OpenSSLFailure.end("EVP_EncryptUpdate")
        }
        // CMAC's subkey for whole blocks: the encryption of zeros, doubled in GF(2^128) (NIST SP 800-38B, section 6.1).
        var subkey = SIMD4<UInt32>()
        for index in 0..<4 {
            subkey[index] = UInt32(bigEndian: zeros[index]) << 1 | UInt32(bigEndian: zeros[(index + 1) % 4]) >> 31
        }
        // The highest bit was rotated into the lowest place, where it stands for the field's polynomial.
        if subkey[3] & 1 == 1 { subkey[3] ^= 1 ^ 0x87 }
        // Each block begins with a counter of two bytes, a label and a zero.
        for (block, counter) in [(0, UInt32(1)), (4, 2)] {
            for index in 0..<4 { blocks[block + index] = subkey[index].bigEndian }
            blocks[block] = (subkey[0] ^ (counter << 16 | UInt32(UInt8(ascii: "X")) << 8)).bigEndian
        }
        wipe(&zeros)
        wipe(&subkey)
    }

    deinit {
        wipe(&blocks)
    }

    /// Encrypts two blocks, which gives a derived key; returns whether that was possible.
    private func derive(_ blocks: SIMD8<UInt32>, into key: UnsafeMutableRawBufferPointer) -> Bool {
        var written: Int32 = 0
        return unsafe withUnsafeBytes(of: blocks) { blocks in
            unsafe EVP_EncryptUpdate(
                derivation.pointer, key.assumingMemoryBound(to: UInt8.self).baseAddress, &written,
                blocks.assumingMemoryBound(to: UInt8.self).baseAddress, Int32(blocks.count)) == 1
        }
    }

    /// Gives a context a nonce and, unless it has it already, the key that is derived from the nonce's first half.
    private func begin(_ context: CipherContext, _ nonce: Span<UInt8>) -> Bool {
        func word(_ start: Int) -> UInt32 {
            UInt32(
                littleEndian:
                    UInt32(nonce[start]) | UInt32(nonce[start + 1]) << 8 | UInt32(nonce[start + 2]) << 16
                    | UInt32(nonce[start + 3]) << 24)
        }
        let prefix = SIMD4(0, word(0), word(4), word(8))
        let rest = nonce.extracting(12..<Self.nonceLength)
        if context.prefix == prefix { return unsafe context.begin(nil, rest) }
        context.prefix = nil
        var key = SIMD8<UInt32>()
        // The key is made, used and wiped in one place: passed as an argument it would be copied, and the copies would
        // stay on the stack.
        let isReady = unsafe withUnsafeMutableBytes(of: &key) { key in
            defer { unsafe OPENSSL_cleanse(key.baseAddress, key.count) }
            return unsafe derive(blocks ^ SIMD8(lowHalf: prefix, highHalf: prefix), into: key)
                && context.begin(key.assumingMemoryBound(to: UInt8.self).baseAddress, rest)
        }
        if isReady { context.prefix = prefix }
        return isReady
    }

    /// Appends the nonce, the encrypted text and its tag.
    ///
    /// - Parameters:
    ///   - head: The text's first part.
    ///   - tail: Its second part, which need not lie beside the first.
    ///   - nonce: `nonceLength` random bytes. Nonces that follow one another may share their first half, which saves the derivation.
    ///   - associated: Associated data, which the tag covers as well.
    ///   - output: Where they are appended.
    func seal(
        _ head: Span<UInt8>, _ tail: Span<UInt8>, nonce: Span<UInt8>, associated: Span<UInt8>,
        into output: inout [UInt8]
    ) {
        guard begin(sealing, nonce) else { OpenSSLFailure.end("EVP_EncryptInit") }
        let context = unsafe sealing.pointer
        let length = Self.nonceLength + head.count + tail.count + Self.tagLength
        let isDone = unsafe output.append(count: length) { start in
            for index in 0..<Self.nonceLength { unsafe start[index] = nonce[index] }
            // Both parts are copied together and encrypted in place, as OpenSSL is slower with parts that end within a block.
            let text = unsafe UnsafeMutableBufferPointer(
                start: start + Self.nonceLength, count: head.count + tail.count)
            unsafe head.withUnsafeBufferPointer { unsafe _ = text.update(fromContentsOf: $0) }
            unsafe tail.withUnsafeBufferPointer { unsafe _ = text[head.count...].update(fromContentsOf: $0) }
            let end = unsafe start + (length - Self.tagLength)
            var written: Int32 = 0
            let isEncrypted =
                unsafe associated.withUnsafeBufferPointer {
                    unsafe EVP_EncryptUpdate(context, nil, &written, $0.baseAddress, Int32($0.count)) == 1
                }
                && EVP_EncryptUpdate(context, text.baseAddress, &written, text.baseAddress, Int32(text.count)) == 1
            return unsafe isEncrypted && EVP_EncryptFinal_ex(context, end, &written) == 1
                && copenssl_get_tag(context, end, Int32(Self.tagLength)) == 1
        }
        guard isDone else { OpenSSLFailure.end("EVP_EncryptUpdate") }
    }

    /// Decrypts and appends the text; returns false, and appends nothing, if it was not sealed under this key.
    ///
    /// - Parameters:
    ///   - sealed: What `seal` wrote.
    ///   - associated: As it was given to `seal`.
    ///   - text: Where the text is appended.
    func open(_ sealed: Span<UInt8>, associated: Span<UInt8>, into text: inout [UInt8]) -> Bool {
        let length = sealed.count - Self.nonceLength - Self.tagLength
        guard length >= 0 else { return false }
        let isGenuine =
            unsafe begin(opening, sealed)
            && sealed.withUnsafeBufferPointer { source in
                // The text is decrypted before its tag is verified, and discarded if the tag is wrong.
                unsafe text.append(count: length) { to in
                    var written: Int32 = 0
                    let context = unsafe opening.pointer
                    guard let from = source.baseAddress else { return false }
                    let isRead =
                        unsafe associated.withUnsafeBufferPointer {
                            unsafe EVP_DecryptUpdate(context, nil, &written, $0.baseAddress, Int32($0.count)) == 1
                        }
                        && EVP_DecryptUpdate(context, to, &written, from + Self.nonceLength, Int32(length)) == 1
                        && copenssl_set_tag(context, from + Self.nonceLength + length, Int32(Self.tagLength)) == 1
                    return unsafe isRead && EVP_DecryptFinal_ex(context, to + length, &written) == 1
                }
            }
        if !isGenuine {
            // Otherwise the error would stay in this thread's queue, and a TLS session would take it for its own.
            ERR_clear_error()
        }
        return isGenuine
    }
}

/// Owns one of OpenSSL's cipher contexts; wipes the key's schedule when it is released.
@safe private final class CipherContext {
    let pointer: OpaquePointer
    /// For AES-GCM: zero, and the first half of the nonce from which the present key was derived; nil without a key.
    var prefix: SIMD4<UInt32>?

    /// - Parameters:
    ///   - algorithm: OpenSSL's name.
    ///   - key: Nil if it gets one later.
    ///   - encrypts: Whether it encrypts; otherwise it decrypts.
    init(_ algorithm: String, _ key: SecretKey?, encrypts: Bool = true) {
        guard let cipher = unsafe EVP_CIPHER_fetch(nil, algorithm, nil) else { OpenSSLFailure.end("EVP_CIPHER_fetch") }
        defer { unsafe EVP_CIPHER_free(cipher) }
        guard let pointer = unsafe EVP_CIPHER_CTX_new() else { OpenSSLFailure.end("EVP_CIPHER_CTX_new") }
        unsafe self.pointer = unsafe pointer
        let isReady =
            unsafe EVP_CipherInit_ex2(pointer, cipher, nil, nil, encrypts ? 1 : 0, nil) == 1
            && key?.withBytes { key in
                unsafe key.withUnsafeBufferPointer {
                    unsafe EVP_CipherInit_ex2(pointer, nil, $0.baseAddress, nil, -1, nil)
                }
            } ?? 1 == 1
        guard isReady else { OpenSSLFailure.end("EVP_CipherInit") }
    }

    deinit {
        unsafe EVP_CIPHER_CTX_free(pointer)
    }

    /// Begins another text.
    ///
    /// - Parameters:
    ///   - key: Nil to keep the present one.
    ///   - nonce: The nonce of AES-GCM.
    func begin(_ key: UnsafePointer<UInt8>?, _ nonce: Span<UInt8>) -> Bool {
        unsafe nonce.withUnsafeBufferPointer { nonce in
            unsafe EVP_CipherInit_ex2(pointer, nil, key, nonce.baseAddress, -1, nil) == 1
        }
    }
}

/// Overwrites a part of a key with zeros; the compiler does not omit this.
private func wipe<Words>(_ words: inout Words) {
    unsafe withUnsafeMutableBytes(of: &words) { unsafe OPENSSL_cleanse($0.baseAddress, $0.count) }
}
