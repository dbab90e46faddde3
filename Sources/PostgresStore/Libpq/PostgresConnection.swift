#if PostgreSQL
internal import CPostgres
internal import Glibc
internal import System

/// A connection to a server, which never blocks its thread.
///
/// The caller watches `socket` and calls what the outcome of the last call asks for. Used by one thread at a time.
@safe final class PostgresConnection: @unchecked Sendable {
    // Unchecked: it is made on one thread and handed over to another one, which then is the only one that uses it.

    private let handle: OpaquePointer
    private let notices = Notices()

    /// Begins to connect; `poll` goes on with it.
    ///
    /// Host names are looked up by this call and by `poll`, which then block their thread.
    ///
    /// - Parameter parameters: Names and values of libpq (postgresql.org/docs/current/libpq-connect.html); `dbname` may be a URL,
    ///   whose values are replaced by those of later names.
    init(connectingWith parameters: [ConnectionParameter]) throws(PostgresError) {
        let started = unsafe Self.withCStrings(parameters.map(\.name)) { names in
            unsafe Self.withCStrings(parameters.map(\.value)) { values in
                unsafe PQconnectStartParams(names, values, 1)
            }
        }
        guard let started = unsafe started else { throw .connection("there is no memory for a connection") }
        unsafe handle = started
        _ = unsafe PQsetNoticeReceiver(
            handle,
            { argument, result in
                guard let argument = unsafe argument, let result = unsafe result else { return }
                unsafe Unmanaged<Notices>.fromOpaque(argument).takeUnretainedValue().note(result)
            }, Unmanaged.passUnretained(notices).toOpaque())
        // The only way to learn the code of an error that comes before there is a connection.
        _ = unsafe PQsetErrorVerbosity(handle, PQERRORS_VERBOSE)
        if unsafe PQstatus(handle) == CONNECTION_BAD { throw refusal }
    }

    deinit {
        unsafe PQfinish(handle)
    }

    // MARK: - Connecting

    /// What a connection that is being made waits for.
    enum Progress {
        case readable
        case writable
        case connected
    }

    /// Goes on with connecting; the socket may be another one after each call.
    func poll() throws(PostgresError) -> Progress {
        switch unsafe PQconnectPoll(handle) {
        case PGRES_POLLING_OK:
            guard unsafe PQsetnonblocking(handle, 1) == 0 else { throw lost }
            _ = unsafe PQsetErrorVerbosity(handle, PQERRORS_DEFAULT)
            return .connected
        case PGRES_POLLING_READING: return .readable
        case PGRES_POLLING_WRITING: return .writable
        default: throw refusal
        }
    }

    /// The descriptor to wait for; -1 when there is none.
    var socket: Int32 { unsafe PQsocket(handle) }

    // MARK: - Facts

    /// The host and the port that the connection was made to.
    var address: String {
        let host = unsafe PQhost(handle).map { unsafe String(cString: $0) } ?? ""
        let port = unsafe PQport(handle).map { unsafe String(cString: $0) } ?? ""
        return host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
    }

    var usesTLS: Bool { unsafe PQsslInUse(handle) == 1 }

    // MARK: - Statements

    /// Enters pipeline mode: from then on statements are sent without waiting for the answers to those before.
    func enterPipelineMode() throws(PostgresError) {
        guard unsafe PQenterPipelineMode(handle) == 1 else { throw lost }
    }

    /// Has a statement prepared under a name.
    func sendPrepare(_ name: String, _ sql: String) throws(PostgresError) {
        guard unsafe PQsendPrepare(handle, name, sql, 0, nil) == 1 else { throw lost }
    }

    /// Sends a statement that was prepared.
    func send(_ name: String, _ parameters: borrowing Parameters) throws(PostgresError) {
        let isSent = unsafe Self.withPointers(to: parameters) { values, lengths, formats, count in
            unsafe PQsendQueryPrepared(handle, name, count, values, lengths, formats, 1)
        }
        guard isSent == 1 else { throw lost }
    }

    /// Sends the text of a statement, which is then parsed each time.
    func send(sql: String, _ parameters: borrowing Parameters) throws(PostgresError) {
        let isSent = unsafe Self.withPointers(to: parameters) { values, lengths, formats, count in
            unsafe PQsendQueryParams(handle, sql, count, nil, values, lengths, formats, 1)
        }
        guard isSent == 1 else { throw lost }
    }

    /// Ends the transaction of the statements that were sent since the last call, and asks for an answer to that.
    func sendSync() throws(PostgresError) {
        guard unsafe PQpipelineSync(handle) == 1 else { throw lost }
    }

    /// Writes what is left to the socket.
    ///
    /// - Returns: Whether all of it was written; otherwise call again when the socket is writable, or has been read from.
    func flush() throws(PostgresError) -> Bool {
        switch unsafe PQflush(handle) {
        case 0: return true
        case 1: return false
        default: throw lost
        }
    }

    /// Reads what has arrived.
    func receive() throws(PostgresError) {
        guard unsafe PQconsumeInput(handle) == 1 else { throw lost }
    }

    /// Whether `nextResult` would wait for the server.
    var isBusy: Bool { unsafe PQisBusy(handle) == 1 }

    /// The next answer; nil between the answers to two statements.
    ///
    /// Blocks if `isBusy`.
    func nextResult() -> QueryResult? {
        unsafe PQgetResult(handle).map { unsafe QueryResult(owning: $0) }
    }

    /// Asks the server to end what it does for this connection, on a thread of its own, which keeps the connection until then.
    ///
    /// A server's process does not notice that its client has gone while it waits for a lock or for a standby.
    func cancelSoon() {
        // Without a thread the server's process goes on waiting, as if this one had died.
        try? NamedThread.start("pg-cancel") { [self] in
            guard let cancellation = unsafe PQgetCancel(handle) else { return }
            defer { unsafe PQfreeCancel(cancellation) }
            var text = [CChar](repeating: 0, count: 256)
            _ = unsafe PQcancel(cancellation, &text, Int32(text.count))
        }
    }

    /// Takes the warning that the server has sent since the last call, if there was one: the commit that brings one is no
    /// acknowledgement, as it may not be on the standby.
    func takeWarning() -> PostgresError? { notices.warning.take() }

    var isLost: Bool { unsafe PQstatus(handle) == CONNECTION_BAD }

    /// Why the last call failed.
    private var lost: PostgresError {
        // Before libpq adds to it.
        let message = message
        return farewell() ?? .connection(Self.cleaned(message))
    }

    /// What the server has said when it ended the connection.
    ///
    /// After a failed read or write, libpq does not look at the server's last words by itself. To reach them, this discards all
    /// answers that have not been taken yet.
    private func farewell() -> PostgresError? {
        guard isLost else { return nil }
        // To a statement that was under way.
        var isOver = false
        while !isBusy {
            guard let result = nextResult() else {
                // One is between two answers.
                if isOver { break }
                isOver = true
                continue
            }
            isOver = false
            if case .failed(let error) = result.kind, error.state?.endsSession == true { return error }
        }
        // While it was idle.
        if unsafe PQexitPipelineMode(handle) == 1 || PQpipelineStatus(handle) == PQ_PIPELINE_OFF { _ = isBusy }
        return notices.end
    }

    /// Why no connection was made.
    private var refusal: PostgresError { PostgresError(refusal: message) }

    private var message: String { unsafe PQerrorMessage(handle).map { unsafe String(cString: $0) } ?? "" }

    /// A message of libpq in one line.
    static func cleaned(_ text: String) -> String {
        let lines = text.split(whereSeparator: \.isNewline).map { line in
            line.split(whereSeparator: \.isWhitespace).joined(separator: " ")
        }
        return lines.isEmpty ? "the connection is lost" : lines.joined(separator: "; ")
    }

    // MARK: - C arrays

    /// An array that ends with a null pointer.
    private static func withCStrings<Result>(
        _ texts: [String], _ body: (UnsafePointer<UnsafePointer<CChar>?>?) -> Result
    ) -> Result {
        let copies = unsafe texts.map { unsafe strdup($0) }
        defer { for index in unsafe copies.indices { unsafe free(copies[index]) } }
        let pointers = unsafe copies.map { unsafe UnsafePointer($0) } + [nil]
        return unsafe pointers.withUnsafeBufferPointer { unsafe body($0.baseAddress) }
    }

    /// libpq wants a pointer, a length and a format for each parameter.
    private static func withPointers<Result>(
        to parameters: borrowing Parameters,
        _ body: (
            UnsafePointer<UnsafePointer<CChar>?>?, UnsafePointer<Int32>?, UnsafePointer<Int32>?, Int32
        ) -> Result
    ) -> Result {
        let places = parameters.places
        return unsafe parameters.bytes.withUnsafeBufferPointer { bytes in
            unsafe withUnsafeTemporaryAllocation(of: UnsafePointer<CChar>?.self, capacity: places.count) { values in
                unsafe withUnsafeTemporaryAllocation(of: Int32.self, capacity: 2 * places.count) { numbers in
                    // An empty value needs a pointer too, as a null one is NULL.
                    let empty = UnsafeRawPointer(numbers.baseAddress)
                    let start = unsafe UnsafeRawPointer(bytes.baseAddress) ?? empty
                    for (index, place) in places.enumerated() {
                        let pointer = unsafe place.flatMap { place in
                            unsafe start.map { unsafe ($0 + place.start).assumingMemoryBound(to: CChar.self) }
                        }
                        unsafe values.initializeElement(at: index, to: pointer)
                        unsafe numbers.initializeElement(at: index, to: Int32(place?.length ?? 0))
                        // All are binary.
                        unsafe numbers.initializeElement(at: places.count + index, to: 1)
                    }
                    return unsafe body(
                        values.baseAddress, numbers.baseAddress, numbers.baseAddress.map { unsafe $0 + places.count },
                        Int32(places.count))
                }
            }
        }
    }
}

/// What the server says besides its answers.
///
/// Belongs to its connection, in whose calls it is told.
private final class Notices {
    var warning: PostgresError?
    var end: PostgresError?

    func note(_ result: OpaquePointer) {
        func field(_ code: Int32) -> String? {
            unsafe PQresultErrorField(result, code).map { unsafe String(cString: $0) }
        }
        let said = PostgresError.statement(
            SQLState(field(CPOSTGRES_SQLSTATE) ?? "01000"), field(CPOSTGRES_MESSAGE) ?? "a warning without a text")
        // In English whatever the server's language is.
        switch field(CPOSTGRES_SEVERITY) {
        // A process of the server that ends because another one has crashed commits nothing any more: this warning is not about
        // a commit whose answer came before it.
        case "WARNING" where said.state == .crashShutdown: end = said
        case "WARNING": warning = warning ?? said
        case "FATAL", "PANIC": end = said
        default: break
        }
    }
}

/// The client library that the store uses.
package enum PostgresLibrary {
    /// For example `15.8`: its number has four digits for the minor version (postgresql.org/docs/current/libpq-misc.html).
    package static var version: String {
        let number = PQlibVersion()
        return "\(number / 10_000).\(number % 10_000)"
    }
}
#endif
