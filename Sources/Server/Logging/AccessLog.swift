import Glibc
import HTTP
import Settings
import System

/// Writes one line per request to the access log.
///
/// Any thread. Text that clients choose freely is not logged: a path that the server does not know appears as `-`, and a method as
/// `other`, because lnav and CrowdSec want a word there.
struct AccessLog: Sendable {
    struct Entry {
        let client: String
        let method: Method
        /// Nil for a path that the server does not know.
        let path: String?
        let minorVersion: UInt8
        /// The number of the listener.
        let listener: Int
        /// Such as `TLSv1.3`; nil in clear.
        let tlsVersion: String?
        // Set when the request is answered:
        var requestID = RequestID.none
        var status: UInt16 = 0
        /// 0 without an error.
        var errorCode: UInt16 = 0
        /// The length of the answer's body.
        var bytes = 0
        /// The time from the request's last byte to the answer.
        var microseconds: UInt64 = 0
        var unixTime: Int64 = 0
    }

    private let format: AccessLogFormat
    private let writer: LineWriter
    /// The listeners' names as they stand in a line, by their numbers.
    private let listeners: [String]

    /// Nil for `off`.
    ///
    /// - Parameters:
    ///   - settings: The format.
    ///   - listeners: The names of all listeners.
    ///   - writer: Where lines go.
    init?(_ settings: Settings, listeners: [String], to writer: LineWriter) {
        format = settings.accessLogFormat
        guard format != .off else { return nil }
        self.writer = writer
        self.listeners = listeners.map { [format] name in
            // The path of a Unix socket may have any character.
            let isPlain = name.utf8.allSatisfy { 0x21...0x7E ~= $0 } && !name.contains { "\"\\".contains($0) }
            return format == .combined && isPlain ? name : LogLine.quoted(name)
        }
    }

    func write(_ entry: Entry) {
        var line = Line()
        switch format {
        case .json: line.add(json: entry, listeners[entry.listener])
        case .combined, .off: line.add(combined: entry, listeners[entry.listener])
        }
        writer.append(line.bytes)
    }
}

/// A line of the access log, written piece by piece into one allocation.
private struct Line {
    private(set) var bytes: [UInt8] = []

    init() {
        bytes.reserveCapacity(448)
    }

    /// - Parameter listener: A JSON string.
    mutating func add(json entry: AccessLog.Entry, _ listener: String) {
        add(#"{"time":""#, UTCTime.timestamp(entry.unixTime))
        add(#"","client":""#, entry.client)
        add(#"","method":""#, entry.method.word)
        add(#"","path":""#, entry.path ?? "-")
        add(#"","protocol":"HTTP/1."#, "\(entry.minorVersion)")
        add(#"","status":"#, "\(entry.status)")
        if entry.errorCode > 0 {
            add(#","errorCode":""#, "\(entry.errorCode)")
            add("\"")
        }
        add(#","bytes":"#, "\(entry.bytes)")
        add(#","microseconds":"#, "\(entry.microseconds)")
        add(#","listener":"#, listener)
        add(name: "tls", entry.tlsVersion)
        add(name: "request_id", entry.requestID.text)
        add("}\n")
    }

    mutating func add(combined entry: AccessLog.Entry, _ listener: String) {
        add(entry.client, " - - [")
        // The time as in the common log format.
        add(UTCTime.text(entry.unixTime, "%d/%b/%Y:%H:%M:%S +0000"), "] \"")
        add(entry.method.word, " ")
        add(entry.path ?? "-", " HTTP/1.")
        add("\(entry.minorVersion)", "\" ")
        add("\(entry.status)", " ")
        add("\(entry.bytes)", " \"-\" \"-\" ")
        add("\(entry.microseconds)", " ")
        add(entry.requestID.text ?? "-", " ")
        add(entry.errorCode > 0 ? "\(entry.errorCode)" : "-", " ")
        add(listener, " ")
        add(entry.tlsVersion ?? "-", "\n")
    }

    private mutating func add(_ first: String, _ second: String = "") {
        bytes.append(contentsOf: first.utf8)
        bytes.append(contentsOf: second.utf8)
    }

    /// Adds a member of the object, unless it has no value.
    private mutating func add(name: String, _ value: String?) {
        guard let value else { return }
        add(",\"", name)
        add("\":\"", value)
        add("\"")
    }
}

/// The file of the access log before the server opens it.
package enum AccessLogFile {
    /// Fails if the server could not open the file; creates nothing.
    ///
    /// Does not check whether a pipe has a reader, without which the server cannot open it.
    static func examine(_ path: String) throws(SystemError) {
        guard FileStatus(path)?.isPipe != true else {
            // Opening and closing a pipe would tell its reader that the log has ended.
            guard unsafe access(path, W_OK) == 0 else { throw SystemError.last("open") }
            return
        }
        do {
            _ = try FileDescriptor(opening: path, O_WRONLY | O_APPEND | O_NOCTTY | O_NONBLOCK)
        } catch {
            guard error.code == ENOENT else { throw error }
            guard unsafe access(Path.folder(of: path), W_OK | X_OK) == 0 else { throw SystemError.last("open") }
        }
    }
}
