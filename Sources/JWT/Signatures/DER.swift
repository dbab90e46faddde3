/// Writes the few ASN.1 structures in which OpenSSL takes public keys and signatures (DER, ITU-T X.690).
enum DER {
    private enum Tag {
        static let integer: UInt8 = 0x02
        static let bitString: UInt8 = 0x03
        static let null: UInt8 = 0x05
        static let objectIdentifier: UInt8 = 0x06
        static let sequence: UInt8 = 0x30
    }

    private static func element(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] {
        var length: [UInt8] = []
        if content.count < 0x80 {
            length = [UInt8(content.count)]
        } else {
            var rest = content.count
            while rest > 0 {
                length.insert(UInt8(truncatingIfNeeded: rest), at: 0)
                rest >>= 8
            }
            length.insert(0x80 | UInt8(length.count), at: 0)
        }
        return [tag] + length + content
    }

    static func sequence(_ elements: [UInt8]...) -> [UInt8] {
        element(Tag.sequence, elements.flatMap(\.self))
    }

    /// A number of at least 0.
    ///
    /// - Parameter magnitude: Big endian, with any number of leading zeros.
    static func integer(_ magnitude: some Collection<UInt8>) -> [UInt8] {
        let digits = Array(magnitude.drop { $0 == 0 })
        // A first bit of 1 would make it negative.
        let isPositive = digits.first.map { $0 < 0x80 } ?? false
        return element(Tag.integer, isPositive ? digits : [0] + digits)
    }

    // MARK: - Public keys (SubjectPublicKeyInfo: RFC 5280, section 4.1)

    /// An RSA key (RFC 8017, appendix A.1.1).
    static func rsaKey(modulus: [UInt8], exponent: [UInt8]) -> [UInt8] {
        let algorithm: [UInt8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01]
        return publicKey(
            sequence(element(Tag.objectIdentifier, algorithm), element(Tag.null, [])),
            sequence(integer(modulus), integer(exponent))
        )
    }

    /// A point of a curve (RFC 5480, section 2).
    static func ellipticCurveKey(_ curve: EllipticCurve, x: [UInt8], y: [UInt8]) -> [UInt8] {
        let algorithm: [UInt8] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01]
        let name: [UInt8] =
            switch curve {
            case .p256: [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07]
            case .p384: [0x2b, 0x81, 0x04, 0x00, 0x22]
            case .p521: [0x2b, 0x81, 0x04, 0x00, 0x23]
            }
        // 4: both coordinates follow.
        return publicKey(
            sequence(element(Tag.objectIdentifier, algorithm), element(Tag.objectIdentifier, name)), [4] + x + y
        )
    }

    /// An Ed25519 key (RFC 8410, section 4).
    static func ed25519Key(_ point: [UInt8]) -> [UInt8] {
        publicKey(sequence(element(Tag.objectIdentifier, [0x2b, 0x65, 0x70])), point)
    }

    private static func publicKey(_ algorithm: [UInt8], _ key: [UInt8]) -> [UInt8] {
        // 0: the last byte has no unused bits.
        sequence(algorithm, element(Tag.bitString, [0] + key))
    }
}
