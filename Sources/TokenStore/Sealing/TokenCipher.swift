internal import COpenSSL
internal import Cryptography

/// XAES-256-GCM under one key (C2SP, XAES-256-GCM).
///
/// Each text is encrypted with AES-256-GCM under a key of its own, which is derived from this key and the first half of the nonce.
/// Random nonces of 192 bits do not repeat, so nobody has to count how often a key has sealed. With AES-GCM alone, whose nonces
/// have 96 bits, a key may seal 2^32 texts only (NIST SP 800-38D, section 8.3).
///
/// Used by one thread at a time.
@safe final class TokenCipher {
    static let nonceLength = 24
    static let tagLength = 16

    /// AES-256 of single blocks under this key, which makes the derived keys.
    private let derivation: CipherContext
    /// AES-256-GCM, which is given a derived key where a nonce has another first half than the one before.
    private let sealing: CipherContext
    private let opening: CipherContext
    /// The two blocks whose encryption is the derived key (NIST SP 800-108, KDF in counter mode with CMAC), without the nonce.
    private var blocks: [UInt8] = []
    /// The same with the nonce.
    private var inputs = [UInt8](repeating: 0, count: 32)
    private var derived = [UInt8](repeating: 0, count: 32)

    init(_ key: SecretKey) throws(SealingError) {
        derivation = try CipherContext("AES-256-ECB", key, encrypts: true)
        sealing = try CipherContext("AES-256-GCM", nil, encrypts: true)
        opening = try CipherContext("AES-256-GCM", nil, encrypts: false)
        // CMAC's subkey for whole blocks: the encryption of zeros, doubled in GF(2^128) (NIST SP 800-38B, section 6.1).
        guard derive() else { throw .library("EVP_EncryptUpdate") }
        var subkey = Array(derived[..<16])
        for index in 0..<16 { subkey[index] = derived[index] << 1 | (index < 15 ? derived[index + 1] >> 7 : 0) }
        subkey[15] ^= (derived[0] >> 7) * 0x87
        for counter in [UInt8(1), 2] {
            blocks += [subkey[0], subkey[1] ^ counter, subkey[2] ^ UInt8(ascii: "X")] + subkey[3...]
        }
        SecretKey.wipe(&subkey)
        inputs = blocks
    }

    deinit {
        SecretKey.wipe(&blocks)
        SecretKey.wipe(&inputs)
        SecretKey.wipe(&derived)
    }

    /// Encrypts `inputs`.
    private func derive() -> Bool {
        var written: Int32 = 0
        return unsafe EVP_EncryptUpdate(derivation.pointer, &derived, &written, inputs, Int32(inputs.count)) == 1
    }

    /// Gives a context a nonce, and the key that is derived from the nonce's first half unless it has that.
    private func begin(_ context: CipherContext, _ nonce: Span<UInt8>) -> Bool {
        unsafe nonce.withUnsafeBufferPointer { nonce in
            guard let start = nonce.baseAddress else { return false }
            let initialize = unsafe context.encrypts ? EVP_EncryptInit_ex2 : EVP_DecryptInit_ex2
            if unsafe context.prefix.elementsEqual(nonce.prefix(12)) {
                return unsafe initialize(context.pointer, nil, nil, start + 12, nil) == 1
            }
            for index in 0..<12 {
                unsafe inputs[4 + index] = blocks[4 + index] ^ nonce[index]
                unsafe inputs[20 + index] = blocks[20 + index] ^ nonce[index]
            }
            context.prefix = []
            guard unsafe derive() && initialize(context.pointer, nil, derived, start + 12, nil) == 1 else {
                return false
            }
            unsafe context.prefix.append(contentsOf: nonce.prefix(12))
            return true
        }
    }

    /// Appends the nonce, the encrypted text and its tag.
    ///
    /// - Parameters:
    ///   - head: The text's first part.
    ///   - tail: Its second part, which need not lie beside the first.
    ///   - nonce: `nonceLength` random bytes. Nonces that follow one another may share their first half, which saves the derivation.
    ///   - associated: Associated data, which the tag covers as well.
    ///   - output: They are appended to it.
    func seal(
        _ head: Span<UInt8>, _ tail: Span<UInt8>, nonce: Span<UInt8>, associated: Span<UInt8>,
        into output: inout [UInt8]
    ) throws(SealingError) {
        guard begin(sealing, nonce) else { throw .library("EVP_EncryptInit") }
        let context = unsafe sealing.pointer
        let length = Self.nonceLength + head.count + tail.count + Self.tagLength
        let isDone = unsafe output.append(count: length) { start in
            for index in 0..<Self.nonceLength { unsafe start[index] = nonce[index] }
            var place = unsafe start + Self.nonceLength
            var written: Int32 = 0
            guard unsafe encrypt(associated, to: nil, &written), unsafe encrypt(head, to: place, &written)
            else { return false }
            unsafe place += head.count
            guard unsafe encrypt(tail, to: place, &written) else { return false }
            unsafe place += tail.count
            return unsafe EVP_EncryptFinal_ex(context, place, &written) == 1
                && copenssl_get_tag(context, place, Int32(Self.tagLength)) == 1
        }
        guard isDone else { throw .library("EVP_EncryptUpdate") }
    }

    private func encrypt(
        _ text: Span<UInt8>, to place: UnsafeMutablePointer<UInt8>?, _ written: inout Int32
    ) -> Bool {
        unsafe text.withUnsafeBufferPointer { source in
            unsafe source.isEmpty
                || EVP_EncryptUpdate(sealing.pointer, place, &written, source.baseAddress, Int32(source.count)) == 1
        }
    }

    /// Decrypts and appends the text; returns false, and appends nothing, if it was not sealed under this key.
    ///
    /// - Parameters:
    ///   - sealed: What `seal` wrote.
    ///   - associated: As it was given to `seal`.
    ///   - text: Where the text goes.
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
    let encrypts: Bool
    /// Of AES-GCM: the first half of the nonce whose key it has; empty if it has none.
    var prefix: [UInt8] = []

    /// - Parameters:
    ///   - algorithm: OpenSSL's name.
    ///   - key: Nil if it gets one later.
    init(_ algorithm: String, _ key: SecretKey?, encrypts: Bool) throws(SealingError) {
        guard let cipher = unsafe EVP_CIPHER_fetch(nil, algorithm, nil) else { throw .library("EVP_CIPHER_fetch") }
        defer { unsafe EVP_CIPHER_free(cipher) }
        guard let pointer = unsafe EVP_CIPHER_CTX_new() else { throw .library("EVP_CIPHER_CTX_new") }
        unsafe self.pointer = unsafe pointer
        self.encrypts = encrypts
        let direction: Int32 = encrypts ? 1 : 0
        let isReady =
            if let key {
                key.withBytes { bytes in
                    unsafe bytes.withUnsafeBufferPointer {
                        unsafe EVP_CipherInit_ex2(pointer, cipher, $0.baseAddress, nil, direction, nil)
                    }
                }
            } else {
                unsafe EVP_CipherInit_ex2(pointer, cipher, nil, nil, direction, nil)
            }
        guard isReady == 1 else { throw .library("EVP_CipherInit") }
    }

    deinit {
        unsafe EVP_CIPHER_CTX_free(pointer)
    }
}
