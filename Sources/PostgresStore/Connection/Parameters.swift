#if PostgreSQL
/// The values of a statement's parameters in PostgreSQL's binary format: integers in network byte order, bytes as they are.
struct Parameters: Sendable {
    private(set) var bytes: [UInt8] = []
    /// Where each value begins and how long it is; nil for NULL.
    private(set) var places: [(start: Int, length: Int)?] = []

    init() {}

    var count: Int { places.count }

    mutating func removeAll() {
        bytes.removeAll(keepingCapacity: true)
        places.removeAll(keepingCapacity: true)
    }

    mutating func append(_ value: [UInt8]) {
        places.append((bytes.count, value.count))
        bytes.append(contentsOf: value)
    }

    mutating func append(_ value: [UInt8]?) {
        if let value { append(value) } else { places.append(nil) }
    }

    /// A `text`.
    mutating func append(_ value: String) {
        append(Array(value.utf8))
    }

    /// A `bigint`.
    mutating func append(_ value: Int64) {
        places.append((bytes.count, 8))
        appendBigEndian(UInt64(bitPattern: value), count: 8)
    }

    /// A `bigint` or NULL.
    mutating func append(_ value: Int64?) {
        if let value { append(value) } else { places.append(nil) }
    }

    /// A `boolean`.
    mutating func append(_ value: Bool) {
        append([value ? 1 : 0])
    }

    /// A `bigint[]`.
    mutating func append(_ values: [Int64?]) {
        beginArray(of: .bigint, count: values.count, hasNull: values.contains(nil))
        for value in values { appendElement(value) { $0.appendBigEndian(UInt64(bitPattern: $1), count: 8) } }
        endArray()
    }

    /// A `bytea[]`.
    mutating func append(_ values: [[UInt8]?]) {
        beginArray(of: .bytea, count: values.count, hasNull: values.contains(nil))
        for value in values { appendElement(value) { $0.bytes.append(contentsOf: $1) } }
        endArray()
    }

    // MARK: - Arrays (array_recv in PostgreSQL's src/backend/utils/adt/arrayfuncs.c)

    /// The numbers of types in `pg_type.dat`, which never change.
    private enum ElementType: UInt64 {
        case bytea = 17
        case bigint = 20
    }

    private mutating func beginArray(of type: ElementType, count: Int, hasNull: Bool) {
        places.append((bytes.count, 0))
        // The number of dimensions: none for an empty array.
        appendBigEndian(count == 0 ? 0 : 1, count: 4)
        appendBigEndian(hasNull ? 1 : 0, count: 4)
        appendBigEndian(type.rawValue, count: 4)
        guard count > 0 else { return }
        appendBigEndian(UInt64(count), count: 4)
        // The index of the first element.
        appendBigEndian(1, count: 4)
    }

    private mutating func appendElement<Element>(_ value: Element?, _ append: (inout Parameters, Element) -> Void) {
        let length = bytes.count
        // The element's length, or -1 for NULL.
        appendBigEndian(UInt64(bitPattern: -1), count: 4)
        guard let value else { return }
        append(&self, value)
        let size = UInt32(bytes.count - length - 4)
        for place in 0..<4 { bytes[length + place] = UInt8(truncatingIfNeeded: size >> UInt32(24 - 8 * place)) }
    }

    private mutating func endArray() {
        guard let place = places[places.count - 1] else { return }
        places[places.count - 1] = (place.start, bytes.count - place.start)
    }

    private mutating func appendBigEndian(_ value: UInt64, count: Int) {
        for place in (0..<count).reversed() { bytes.append(UInt8(truncatingIfNeeded: value >> UInt64(8 * place))) }
    }
}
#endif
