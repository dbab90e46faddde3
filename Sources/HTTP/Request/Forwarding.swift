/// The headers that proxies add, as received.
///
/// As in `HeaderFields`, no property has a default value, so that the compiler asks for a new one in `moved(by:)`.
package struct Forwarding: Sendable {
    /// Whether there is any of X-Forwarded-*, Forwarded and X-Real-IP.
    package internal(set) var isPresent: Bool
    /// X-Forwarded-Proto.
    var protos: FieldLines
    /// X-Forwarded-For.
    var addresses: FieldLines
    /// Forwarded (RFC 7239).
    var elements: FieldLines
    /// The last X-Request-Id; empty if there is none.
    ///
    /// Says nothing about the request's way.
    package internal(set) var requestID: ByteRange

    /// The value of each X-Forwarded-Proto, in order.
    package func protos(in bytes: Span<UInt8>) -> [ByteRange] {
        protos.values(named: HeaderField.forwardedProto.name, in: bytes)
    }

    /// The value of each X-Forwarded-For, in order: the last element of the last one is the nearest proxy's.
    package func addresses(in bytes: Span<UInt8>) -> [ByteRange] {
        addresses.values(named: HeaderField.forwardedFor.name, in: bytes)
    }

    /// The value of each Forwarded, in order: the last element of the last one is the nearest proxy's.
    package func elements(in bytes: Span<UInt8>) -> [ByteRange] {
        elements.values(named: HeaderField.forwarded.name, in: bytes)
    }
}

extension Forwarding {
    /// Of no header.
    init() {
        self.init(
            isPresent: false, protos: FieldLines(), addresses: FieldLines(), elements: FieldLines(), requestID: .empty)
    }

    func moved(by distance: Int) -> Forwarding {
        Forwarding(
            isPresent: isPresent, protos: protos.moved(by: distance), addresses: addresses.moved(by: distance),
            elements: elements.moved(by: distance), requestID: requestID.moved(by: distance)
        )
    }
}
