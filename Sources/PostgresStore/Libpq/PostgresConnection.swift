#if PostgreSQL
import CPostgres
import Glibc
import System
import TokenStore

/// A connection to a server, which never blocks its thread.
///
/// The caller watches `socket`, and makes the call that the last outcome asks for. Used by one thread at a time.
@safe final class PostgresConnection: @unchecked Sendable {
    // Unchecked: it is made on one thread and handed to another one, which from then on uses it alone.

    private let handle: OpaquePointer
    private let notices = Notices()

    /// Begins to connect; `poll` continues.
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
        // The only way to learn the code of an error that the server sends while connecting.
        _ = unsafe PQsetErrorVerbosity(handle, PQERRORS_VERBOSE)
        if unsafe PQstatus(handle) == CONNECTION_BAD { throw refusal }
    }

    deinit {
        unsafe PQfinish(handle)
    }

    // MARK: - Connecting

    /// Continues to connect; after each call, the socket may be another one.
    ///
    /// - Returns: The events of poll(2) to wait for before the next call; nil if the connection is made.
    func poll() throws(PostgresError) -> Int32? {
        switch unsafe PQconnectPoll(handle) {
        case PGRES_POLLING_OK:
            guard unsafe PQsetnonblocking(handle, 1) == 0 else { throw lost }
            _ = unsafe PQsetErrorVerbosity(handle, PQERRORS_DEFAULT)
            return nil
        case PGRES_POLLING_READING: return POLLIN
        case PGRES_POLLING_WRITING: return POLLOUT
        default: throw refusal
        }
    }

    /// The descriptor to wait for; -1 if there is none.
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

    /// Enters pipeline mode: from then on, statements are sent without waiting for the answers to earlier ones.
    func enterPipelineMode() throws(PostgresError) {
        guard unsafe PQenterPipelineMode(handle) == 1 else { throw lost }
    }

    /// Asks the server to prepare a statement under a name.
    func sendPrepare(_ name: String, _ sql: String) throws(PostgresError) {
        guard unsafe PQsendPrepare(handle, name, sql, 0, nil) == 1 else { throw lost }
    }

    /// Sends a prepared statement.
    func send(_ name: String, _ parameters: borrowing Parameters) throws(PostgresError) {
        let isSent = unsafe Self.withPointers(to: parameters) { values, lengths, formats, count in
            unsafe PQsendQueryPrepared(handle, name, count, values, lengths, formats, 1)
        }
        guard isSent == 1 else { throw lost }
    }

    /// Sends the text of a statement, which the server parses each time.
    func send(sql: String, _ parameters: borrowing Parameters) throws(PostgresError) {
        let isSent = unsafe Self.withPointers(to: parameters) { values, lengths, formats, count in
            unsafe PQsendQueryParams(handle, sql, count, nil, values, lengths, formats, 1)
        }
        guard isSent == 1 else { throw lost }
    }

    /// Ends the transaction of the statements sent since the last call, and asks the server to confirm that.
    func sendSync() throws(PostgresError) {
        guard unsafe PQpipelineSync(handle) == 1 else { throw lost }
    }

    /// Writes what is still to be sent.
    ///
    /// - Returns: Whether all of it was written; otherwise call this again when the socket is writable, or after `receive`.
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

    /// Asks the server, on a new thread, to cancel the present statement; the connection is kept until then.
    ///
    /// While a server's process waits for a lock or a standby, it does not notice that its client has gone.
    func cancelSoon() {
        // If there is no thread for it, the server's process goes on waiting, as after the death of this process.
        try? NamedThread.start("pg-cancel") { [self] in
            guard let cancellation = unsafe PQgetCancel(handle) else { return }
            defer { unsafe PQfreeCancel(cancellation) }
            var text = [CChar](repeating: 0, count: 256)
            _ = unsafe PQcancel(cancellation, &text, Int32(text.count))
        }
    }

    /// Takes the warning that the server has sent if somebody has ended a commit's wait for the standby since the last call.
    ///
    /// Such a commit is not acknowledged.
    func takeWarning() -> PostgresError? { notices.warning.take() }

    var isLost: Bool { unsafe PQstatus(handle) == CONNECTION_BAD }

    /// Why the last call failed.
    private var lost: PostgresError {
        // Read first, as `farewell` makes libpq add to it.
        let message = message
        return farewell() ?? .connection(Self.cleaned(message))
    }

    /// The error with which the server has ended the connection; nil if it has sent none.
    ///
    /// After a failed read or write, libpq does not look for it by itself. To reach it, this discards all answers that have not
    /// been taken yet.
    private func farewell() -> PostgresError? {
        guard isLost else { return nil }
        // It may be the answer to a statement that was under way.
        var isOver = false
        while !isBusy {
            guard let result = nextResult() else {
                // A single nil stands between two answers.
                if isOver { break }
                isOver = true
                continue
            }
            isOver = false
            if case .failed(let error) = result.kind, error.state?.endsSession == true { return error }
        }
        // Otherwise the connection was idle, and the error comes as a notice.
        if unsafe PQexitPipelineMode(handle) == 1 || PQpipelineStatus(handle) == PQ_PIPELINE_OFF { _ = isBusy }
        return notices.end
    }

    /// Why no connection was made.
    private var refusal: PostgresError { PostgresError(refusal: message) }

    private var message: String { unsafe PQerrorMessage(handle).map { unsafe String(cString: $0) } ?? "" }

    /// Puts a message of libpq into one line.
    static func cleaned(_ text: String) -> String {
        let lines = text.split(whereSeparator: \.isNewline).map { line in
            line.split(whereSeparator: \.isWhitespace).joined(separator: " ")
        }
        return lines.isEmpty ? "the connection is lost" : lines.joined(separator: "; ")
    }

    // MARK: - C arrays

    /// Lends an array of C strings that ends with a null pointer.
    private static func withCStrings<Result>(
        _ texts: [String], _ body: (UnsafePointer<UnsafePointer<CChar>?>?) -> Result
    ) -> Result {
        let copies = unsafe texts.map { unsafe strdup($0) }
        defer { for index in unsafe copies.indices { unsafe free(copies[index]) } }
        let pointers = unsafe copies.map { unsafe UnsafePointer($0) } + [nil]
        return unsafe pointers.withUnsafeBufferPointer { unsafe body($0.baseAddress) }
    }

    /// Lends a pointer, a length and a format for each parameter.
    private static func withPointers<Result>(
        to parameters: borrowing Parameters,
        _ body: (
            UnsafePointer<UnsafePointer<CChar>?>?, UnsafePointer<Int32>?, UnsafePointer<Int32>?, Int32
        ) -> Result
    ) -> Result {
        let places = parameters.places
        let lengths = places.map { Int32($0?.length ?? 0) }
        // The binary format.
        let formats = [Int32](repeating: 1, count: places.count)
        return unsafe parameters.bytes.withUnsafeBytes { bytes in
            let start = bytes.baseAddress
            // A null pointer means NULL.
            let values = unsafe places.map { place in
                unsafe place.flatMap { place in
                    unsafe start.map { unsafe ($0 + place.start).assumingMemoryBound(to: CChar.self) }
                }
            }
            return unsafe body(values, lengths, formats, Int32(places.count))
        }
    }
}

/// The notices that the server sends besides its answers.
///
/// Belongs to its connection, whose calls deliver them.
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
        // The process ends because another one has crashed. This warning says nothing of a commit that was answered before it,
        // and there is none after it.
        case "WARNING" where said.state == .crashShutdown: end = said
        // The only warnings about the commit are the two that this function of PostgreSQL gives. As they have no code of their own,
        // the function tells them from others, such as the warning that a vacuum is needed.
        case "WARNING" where field(CPOSTGRES_FUNCTION) == "SyncRepWaitForLSN": warning = said
        case "FATAL", "PANIC": end = said
        default: break
        }
    }
}

/// The client library that the store uses.
package enum PostgresLibrary {
    static var software: StoreSoftware { StoreSoftware(name: "libpq", version: version) }

    /// For example `15.8`: its number has four digits for the minor version (postgresql.org/docs/current/libpq-misc.html).
    package static var version: String {
        let number = PQlibVersion()
        return "\(number / 10_000).\(number % 10_000)"
    }
}
#endif
