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
        appendBigEndian(value)
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
        for value in values { appendElement(value, length: 8) { $0.appendBigEndian($1) } }
        endArray()
    }

    /// A `bytea[]`.
    mutating func append(_ values: [[UInt8]?]) {
        beginArray(of: .bytea, count: values.count, hasNull: values.contains(nil))
        for value in values { appendElement(value, length: value?.count ?? 0) { $0.bytes.append(contentsOf: $1) } }
        endArray()
    }

    // MARK: - Arrays (array_recv in PostgreSQL's src/backend/utils/adt/arrayfuncs.c)

    /// The numbers of types in `pg_type.dat`, which never change.
    private enum ElementType: Int32 {
        case bytea = 17
        case bigint = 20
    }

    private mutating func beginArray(of type: ElementType, count: Int, hasNull: Bool) {
        places.append((bytes.count, 0))
        // The number of dimensions: none for an empty array.
        appendBigEndian(count == 0 ? 0 : 1 as Int32)
        appendBigEndian(hasNull ? 1 : 0 as Int32)
        appendBigEndian(type.rawValue)
        guard count > 0 else { return }
        appendBigEndian(Int32(count))
        // The index of the first element.
        appendBigEndian(1 as Int32)
    }

    private mutating func appendElement<Element>(
        _ value: Element?, length: Int, _ append: (inout Parameters, Element) -> Void
    ) {
        // -1 for NULL.
        appendBigEndian(value == nil ? -1 : Int32(length))
        if let value { append(&self, value) }
    }

    private mutating func endArray() {
        guard let place = places[places.count - 1] else { return }
        places[places.count - 1] = (place.start, bytes.count - place.start)
    }

    private mutating func appendBigEndian(_ value: some FixedWidthInteger) {
        unsafe withUnsafeBytes(of: value.bigEndian) { unsafe bytes.append(contentsOf: $0) }
    }
}
#endif
