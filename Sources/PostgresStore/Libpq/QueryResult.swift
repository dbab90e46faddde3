#if PostgreSQL
import CPostgres

/// The server's answer to one statement, or to a Sync.
///
/// Rows are in the binary format. Owns a result of libpq.
@safe struct QueryResult: ~Copyable {
    private let result: OpaquePointer

    /// Takes over the result, and frees it in the end.
    init(owning result: OpaquePointer) {
        unsafe self.result = result
    }

    deinit {
        unsafe PQclear(result)
    }

    /// What kind of answer this is.
    enum Kind {
        /// The statement has succeeded; its rows, if it returns any.
        case answer
        /// The transaction of all statements since the last Sync has ended: with a commit, unless one of them has failed.
        case synchronized
        /// The statement was skipped, as an earlier one of its transaction has failed.
        case skipped
        case failed(PostgresError)
    }

    var kind: Kind {
        switch unsafe PQresultStatus(result) {
        case PGRES_TUPLES_OK, PGRES_COMMAND_OK: .answer
        case PGRES_PIPELINE_SYNC: .synchronized
        case PGRES_PIPELINE_ABORTED: .skipped
        case PGRES_FATAL_ERROR, PGRES_NONFATAL_ERROR: .failed(error)
        default: .failed(.unexpected("PostgreSQL has sent an answer that token-cache does not know"))
        }
    }

    private var error: PostgresError {
        // Without a code, the error is one of libpq's own: the connection is lost.
        guard let state = field(CPOSTGRES_SQLSTATE) else {
            let text = unsafe PQresultErrorMessage(result).map { unsafe String(cString: $0) } ?? ""
            return .connection(PostgresConnection.cleaned(text))
        }
        return .statement(SQLState(state), field(CPOSTGRES_MESSAGE) ?? "error without a text")
    }

    private func field(_ code: Int32) -> String? {
        unsafe PQresultErrorField(result, code).map { unsafe String(cString: $0) }
    }

    var rowCount: Int { unsafe Int(PQntuples(result)) }

    var columnCount: Int { unsafe Int(PQnfields(result)) }

    /// How many rows a statement has changed; 0 for one that only reads.
    var changedCount: Int {
        // For SELECT, it is the number of rows that were read.
        guard unsafe PQcmdStatus(result).map({ unsafe $0.pointee != UInt8(ascii: "S") }) ?? false else { return 0 }
        return unsafe PQcmdTuples(result).flatMap { unsafe Int(String(cString: $0)) } ?? 0
    }

    func isNull(_ row: Int, _ column: Int) -> Bool {
        unsafe PQgetisnull(result, Int32(row), Int32(column)) == 1
    }

    /// An integer of two, four or eight bytes, or a boolean; 0 for NULL.
    func integer(_ row: Int, _ column: Int) -> Int64 {
        let bytes = unsafe field(row, column)
        guard let first = unsafe bytes.first else { return 0 }
        // The sign is that of the first byte.
        return unsafe bytes.dropFirst().reduce(Int64(Int8(bitPattern: first))) { $0 << 8 | Int64($1) }
    }

    func optionalInteger(_ row: Int, _ column: Int) -> Int64? {
        isNull(row, column) ? nil : integer(row, column)
    }

    /// Bytes, empty for NULL.
    func bytes(_ row: Int, _ column: Int) -> [UInt8] {
        unsafe Array(field(row, column))
    }

    func text(_ row: Int, _ column: Int) -> String {
        String(decoding: bytes(row, column), as: UTF8.self)
    }

    /// Lends the bytes of a value without copying them.
    func withBytes<Result, Failure: Error>(
        _ row: Int, _ column: Int, _ body: (Span<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try body(unsafe Span(_unsafeElements: field(row, column)))
    }

    /// The bytes of a value, which stay valid as long as this result.
    @unsafe private func field(_ row: Int, _ column: Int) -> UnsafeBufferPointer<UInt8> {
        precondition(row < rowCount && column < columnCount, "a value of the result")
        let length = Int(unsafe PQgetlength(result, Int32(row), Int32(column)))
        guard let start = unsafe PQgetvalue(result, Int32(row), Int32(column)), length > 0 else {
            return unsafe UnsafeBufferPointer(start: nil, count: 0)
        }
        return unsafe UnsafeBufferPointer(
            start: UnsafeRawPointer(start).assumingMemoryBound(to: UInt8.self), count: length)
    }
}

/// The values of a statement's parameters in PostgreSQL's binary format: integers in network byte order, bytes as they are.
struct Parameters: Sendable, ExpressibleByArrayLiteral {
    enum Value {
        case bigint(Int64?)
        case bytea([UInt8]?)
        case text(String)
        case bigints([Int64?])
        case byteas([[UInt8]?])
    }

    /// The first byte belongs to no value, so that even an empty value has an address.
    private(set) var bytes: [UInt8] = [0]
    /// Where each value begins and how long it is; nil for NULL.
    private(set) var places: [(start: Int, length: Int)?] = []

    init(arrayLiteral values: Value...) {
        for value in values { append(value) }
    }

    private mutating func append(_ value: Value) {
        switch value {
        case .bigint(nil), .bytea(nil): places.append(nil)
        case .bigint(let number?):
            places.append((bytes.count, 8))
            appendBigEndian(number)
        case .bytea(let value?):
            places.append((bytes.count, value.count))
            bytes.append(contentsOf: value)
        case .text(let text): append(.bytea(Array(text.utf8)))
        case .bigints(let values):
            appendArray(of: .bigint, values, length: { _ in 8 }, append: { $0.appendBigEndian($1) })
        case .byteas(let values):
            appendArray(of: .bytea, values, length: \.count, append: { $0.bytes.append(contentsOf: $1) })
        }
    }

    /// The numbers of types in `pg_type.dat`, which never change.
    private enum ElementType: Int32 {
        case bytea = 17
        case bigint = 20
    }

    /// Appends an array as array_recv reads it (PostgreSQL's src/backend/utils/adt/arrayfuncs.c).
    private mutating func appendArray<Element>(
        of type: ElementType, _ elements: [Element?], length: (Element) -> Int,
        append: (inout Parameters, Element) -> Void
    ) {
        let start = bytes.count
        // It has one dimension, may have NULL, and its first element has the index 1.
        for number in [1, 1, type.rawValue, Int32(elements.count), 1] { appendBigEndian(number) }
        for element in elements {
            // -1 for NULL.
            appendBigEndian(element.map { Int32(length($0)) } ?? -1)
            if let element { append(&self, element) }
        }
        places.append((start, bytes.count - start))
    }

    private mutating func appendBigEndian(_ value: some FixedWidthInteger) {
        unsafe withUnsafeBytes(of: value.bigEndian) { unsafe bytes.append(contentsOf: $0) }
    }
}
#endif
