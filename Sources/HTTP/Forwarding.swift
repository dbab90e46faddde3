/// The headers that proxies add, as received.
package struct Forwarding: Sendable {
    /// Whether there is any of X-Forwarded-*, Forwarded and X-Real-IP.
    package internal(set) var isPresent = false
    /// X-Forwarded-Proto.
    var protos = FieldLines()
    /// X-Forwarded-For.
    var addresses = FieldLines()
    /// Forwarded (RFC 7239).
    var elements = FieldLines()
    /// The last X-Request-Id; empty when there is none.
    package internal(set) var requestID = ByteRange.empty

    /// The value of each X-Forwarded-Proto, in order.
    package func protos(in bytes: Span<UInt8>) -> [ByteRange] {
        protos.values(named: Names.proto, in: bytes)
    }

    /// The value of each X-Forwarded-For, in order: the last element of the last one is the nearest proxy's.
    package func addresses(in bytes: Span<UInt8>) -> [ByteRange] {
        addresses.values(named: Names.addresses, in: bytes)
    }

    /// The value of each Forwarded, in order: the last element of the last one is the nearest proxy's.
    package func elements(in bytes: Span<UInt8>) -> [ByteRange] {
        elements.values(named: Names.elements, in: bytes)
    }

    func moved(by distance: Int) -> Forwarding {
        var moved = self
        moved.protos = protos.moved(by: distance)
        moved.addresses = addresses.moved(by: distance)
        moved.elements = elements.moved(by: distance)
        moved.requestID = requestID.moved(by: distance)
        return moved
    }

    enum Names {
        static let proto: StaticString = "x-forwarded-proto"
        static let addresses: StaticString = "x-forwarded-for"
        static let elements: StaticString = "forwarded"
    }
}
