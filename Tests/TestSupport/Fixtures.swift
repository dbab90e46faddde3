import Foundation

/// The files in `Tests/Fixtures`.
package enum Fixtures {
    /// The path of a SQLite store in the clear: a backup that version 1.0.0 has made with `sealing.enabled: off`, in mode `session`.
    ///
    /// It has three tokens, all with `secret4711` in them, and a session of the user `anna`.
    package static let clearStore = folder.appending(path: "clear-1.0.0.db").path
    /// The secret of the session.
    package static let clearSession = "tcs_d8sFZ4zDDpBHI5oVf_AFB9pmpOpSiSLj-WD8z9vaU-c"

    /// The golden vectors, recorded from the script that this server replaces.
    package struct Vector: Decodable, Sendable, CustomStringConvertible {
        package let id: String
        package let note: String
        package let steps: [Step]

        package var description: String { "\(id): \(note)" }

        package struct Step: Decodable, Sendable {
            package let note: String
            package let request: String
            package let expect: Expectation
        }

        package struct Expectation: Decodable, Sendable {
            package let status: UInt16
            /// Base64; nil means any body.
            package let body: String?
        }
    }

    /// A request with the address it comes from, and whether the script redirects it.
    package struct HTTPSCase: Decodable, Sendable, CustomStringConvertible {
        package let id: String
        package let note: String
        package let remoteAddress: String
        package let method: String
        package let target: String
        package let host: String
        package let headers: [[String]]
        package let expect: Expectation

        package var description: String { "\(id): \(note)" }

        private enum CodingKeys: String, CodingKey {
            case id, note, method, target, host, headers, expect
            case remoteAddress = "remote_addr"
        }

        package struct Expectation: Decodable, Sendable {
            package let outcome: String
            package let status: UInt16?
            package let location: String?
        }
    }

    /// A date as devices write it, which the server's retention and the client read alike.
    package struct DateCase: Decodable, Sendable {
        package let text: String
        /// Since 1970, without the fraction; nil if the text is no expiration to the server.
        package let seconds: Int64?
        /// The same to the client, which also reads what devices in other languages write.
        package let healed: Int64?
        /// Whether it is the SDK's distant past, which stands for no date, or cannot be told from it.
        package let isDistantPast: Bool

        private enum CodingKeys: String, CodingKey {
            case text, seconds, healed
            case isDistantPast = "distantPast"
        }

        package init(from decoder: any Decoder) throws {
            let members = try decoder.container(keyedBy: CodingKeys.self)
            text = try members.decode(String.self, forKey: .text)
            seconds = try members.decode(Int64?.self, forKey: .seconds)
            healed =
                members.contains(.healed) ? try members.decode(Int64?.self, forKey: .healed) : seconds
            isDistantPast = try members.decodeIfPresent(Bool.self, forKey: .isDistantPast) ?? false
        }
    }

    /// What the guide's sample sends from a device in some country, and what it means.
    package struct SampleBody: Decodable, Sendable, CustomStringConvertible {
        package let device: String
        /// The body of the POST, byte for byte in UTF-8.
        package let body: String
        /// When the token expires, in milliseconds since 1970; nil if the body clears the token.
        package let expires: Int64?
        /// When the token was obtained.
        package let refreshed: Int64?

        package var description: String { device }
    }

    package static func dates() throws -> [DateCase] {
        try lines(of: "dates.jsonl")
    }

    package static func sampleBodies() throws -> [SampleBody] {
        try lines(of: "sample-bodies.jsonl")
    }

    package static func vectors() throws -> [Vector] {
        try lines(of: "vectors.jsonl")
    }

    package static func httpsCases() throws -> [HTTPSCase] {
        try lines(of: "https.jsonl")
    }

    private static func lines<Value: Decodable>(of file: String) throws -> [Value] {
        let text = try String(contentsOf: folder.appending(path: file), encoding: .utf8)
        return try text.split(separator: "\n").map { try JSONDecoder().decode(Value.self, from: Data($0.utf8)) }
    }

    private static var folder: URL {
        URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent().appending(path: "Fixtures")
    }
}

extension Fixtures.Vector.Step {
    /// The request's bytes, with a path and host filled in where the vector leaves them open.
    package func bytes(path: String = "/token.php", host: String = "localhost", runKey: String = "abcd1234") -> [UInt8]
    {
        let text = request.replacingOccurrences(of: "RUNKEY00", with: runKey)
        // Swift takes CR LF for one character: split by scalars, of which each stands for a byte.
        let parts = text.components(separatedBy: "\r\n\r\n")
        let head = parts[0].replacingOccurrences(of: "{HOST}", with: host).replacingOccurrences(
            of: "{PATH}", with: path)
        let whole = ([head] + parts.dropFirst()).joined(separator: "\r\n\r\n")
        return whole.unicodeScalars.map { UInt8($0.value) }
    }

    /// The expected body; nil means any.
    package func expectedBody(runKey: String = "abcd1234") -> [UInt8]? {
        guard let body = expect.body, let data = Data(base64Encoded: body) else { return nil }
        return Array(data)
    }
}

/// Waits until a condition holds, however busy the machine is.
package func eventually(_ isSo: () async throws -> Bool) async throws {
    while try await !isSo() { try await Task.sleep(for: .milliseconds(10)) }
}
