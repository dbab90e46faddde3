internal import COpenSSL
internal import Cryptography

/// AES-256-GCM under one key (NIST SP 800-38D), with the key's schedule kept between calls.
///
/// Used by one thread at a time.
@safe final class TokenCipher {
    static let nonceLength = 12
    static let tagLength = 16

    private let context: OpaquePointer

    enum Direction {
        case sealing
        case opening
    }

    init(_ key: SecretKey, _ direction: Direction) throws(SealingError) {
        guard let algorithm = unsafe EVP_CIPHER_fetch(nil, "AES-256-GCM", nil) else {
            throw .library("EVP_CIPHER_fetch")
        }
        defer { unsafe EVP_CIPHER_free(algorithm) }
        guard let context = unsafe EVP_CIPHER_CTX_new() else { throw .library("EVP_CIPHER_CTX_new") }
        unsafe self.context = unsafe context
        let isReady = key.withBytes { bytes in
            unsafe bytes.withUnsafeBufferPointer { bytes in
                switch direction {
                case .sealing: unsafe EVP_EncryptInit_ex2(context, algorithm, bytes.baseAddress, nil, nil)
                case .opening: unsafe EVP_DecryptInit_ex2(context, algorithm, bytes.baseAddress, nil, nil)
                }
            }
        }
        guard isReady == 1 else { throw .library("EVP_CipherInit") }
    }

    deinit {
        // Wipes the schedule.
        unsafe EVP_CIPHER_CTX_free(context)
    }

    /// Appends the nonce, the encrypted text and its tag.
    ///
    /// - Parameters:
    ///   - head: The text's first part.
    ///   - tail: Its second part, which need not lie beside the first.
    ///   - nonce: `nonceLength` bytes that this key has never been used with.
    ///   - associated: Associated data, which the tag covers as well.
    ///   - output: They are appended to it.
    func seal(
        _ head: Span<UInt8>, _ tail: Span<UInt8>, nonce: Span<UInt8>, associated: Span<UInt8>,
        into output: inout [UInt8]
    ) throws(SealingError) {
        let length = Self.nonceLength + head.count + tail.count + Self.tagLength
        let isDone = unsafe output.append(count: length) { start in
            for index in 0..<Self.nonceLength { unsafe start[index] = nonce[index] }
            var place = unsafe start + Self.nonceLength
            var written: Int32 = 0
            guard unsafe EVP_EncryptInit_ex2(context, nil, nil, start, nil) == 1,
                unsafe encrypt(associated, to: nil, &written),
                unsafe encrypt(head, to: place, &written)
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
                || EVP_EncryptUpdate(context, place, &written, source.baseAddress, Int32(source.count)) == 1
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
        let isGenuine = unsafe sealed.withUnsafeBufferPointer { source in
            // The text is decrypted before its tag is verified, and discarded if the tag is wrong.
            unsafe text.append(count: length) { to in
                var written: Int32 = 0
                guard let from = source.baseAddress else { return false }
                let isRead =
                    unsafe EVP_DecryptInit_ex2(context, nil, nil, from, nil) == 1
                    && associated.withUnsafeBufferPointer {
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
