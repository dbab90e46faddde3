internal import COpenSSL

/// Judges Ed25519's public keys, as OpenSSL takes any 32 bytes for one.
enum Ed25519Point {
    /// Bytes of an encoded point (RFC 8032, section 5.1.2).
    static let length = 32

    /// Whether 32 bytes are the canonical encoding of a point of the curve, and that point's order is not small.
    ///
    /// With a key of small order, signatures can be made without any private key.
    static func isUsable(_ encoded: [UInt8]) -> Bool {
        guard encoded.count == length else { return false }
        // Little endian, and the highest bit is the sign of x.
        var y = Array(encoded.reversed())
        y[0] &= 0x7f
        guard y.lexicographicallyPrecedes(prime), !smallOrders.contains(y) else { return false }
        return isOnCurve(y)
    }

    /// 2^255 - 19, big endian.
    private static let prime: [UInt8] = bytes("7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffed")

    /// The y of the points whose order divides 8.
    private static let smallOrders: Set<[UInt8]> = [
        // Order 1, 2 and 4.
        bytes("0000000000000000000000000000000000000000000000000000000000000001"),
        bytes("7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffec"),
        bytes("0000000000000000000000000000000000000000000000000000000000000000"),
        // Order 8.
        bytes("7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7"),
        bytes("05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826"),
    ]

    private static func bytes(_ hexadecimal: String) -> [UInt8] {
        var bytes: [UInt8] = []
        var high: UInt8?
        for character in hexadecimal {
            let digit = UInt8(character.hexDigitValue ?? 0)
            if let first = high.take() { bytes.append(first << 4 | digit) } else { high = digit }
        }
        return bytes
    }

    /// Whether there is an x with -x² + y² = 1 + d·x²·y², which is so if (y² - 1)·(d·y² + 1) is 0 or a square.
    private static func isOnCurve(_ bytes: [UInt8]) -> Bool {
        guard let context = unsafe BN_CTX_new() else { return false }
        defer { unsafe BN_CTX_free(context) }
        unsafe BN_CTX_start(context)
        defer { unsafe BN_CTX_end(context) }
        let (y, prime, product, sum) = unsafe (
            BN_CTX_get(context), BN_CTX_get(context), BN_CTX_get(context), BN_CTX_get(context)
        )
        // BN_CTX_get(3): the last one is null if any of them is.
        guard let y = unsafe y, let prime = unsafe prime, let product = unsafe product, let sum = unsafe sum,
            unsafe BN_bin2bn(bytes, Int32(bytes.count), y) != nil,
            unsafe BN_bin2bn(Self.prime, Int32(Self.prime.count), prime) != nil,
            // d = -121665 / 121666 modulo the prime; RFC 8032, section 5.1.
            unsafe BN_set_word(sum, 121666) == 1,
            unsafe BN_mod_inverse(product, sum, prime, context) != nil,
            unsafe BN_set_word(sum, 121665) == 1,
            unsafe BN_mod_mul(product, product, sum, prime, context) == 1,
            unsafe BN_mod_sub(product, prime, product, prime, context) == 1,
            // product = d·y² + 1, sum = y² - 1
            unsafe BN_mod_sqr(sum, y, prime, context) == 1,
            unsafe BN_mod_mul(product, product, sum, prime, context) == 1,
            unsafe BN_add_word(product, 1) == 1,
            unsafe BN_sub_word(sum, 1) == 1,
            unsafe BN_mod_mul(product, product, sum, prime, context) == 1
        else {
            ERR_clear_error()
            return false
        }
        // 1 for a square, 0 for 0, -1 for others, -2 for a failure.
        return unsafe BN_kronecker(product, prime, context) >= 0
    }
}
