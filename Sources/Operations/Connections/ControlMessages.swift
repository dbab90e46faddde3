import Audit
package import FoundationEssentials
import Glibc
import Settings
import TokenService
import TokenStore

/// Tells a running server that a command has added or removed an API key, so that its logs say who did it.
package struct APIKeyChange: Codable, Sendable {
    static let path = "/key-change"

    private let isAddition: Bool
    /// The key's name.
    let name: String

    package init(isAddition: Bool, name: String) {
        self.isAddition = isAddition
        self.name = name
    }

    /// Whether the name is one that a command sends, so that it may be logged.
    var isValid: Bool { APIKey.isName(name) }

    /// As the audit log calls it.
    var action: AuditEvent.Action { isAddition ? .addAPIKey : .removeAPIKey }

    /// For the log.
    func text(by requester: String) -> String {
        """
        access keys \(isAddition ? "add" : "remove") requested by \(requester): \(name) \
        \(isAddition ? "added" : "removed")
        """
    }
}

/// The reply to an `APIKeyChange`.
struct APIKeyChangeReply: Codable, Sendable {
    /// Why the server cannot use the changed file and keeps its previous keys; nil if it can.
    let fault: String?
}

/// The control socket's path and the size limit of its requests, which server and commands share.
enum ControlSocketAddress {
    /// The largest body of a request in bytes: room for a batch of an import.
    static let bodyLimit = 16 << 20

    /// The path of the socket in a data folder.
    static func path(in directory: String) -> String { directory + "/" + DataDirectory.controlSocketName }

    /// The path of the socket of the server that has these settings.
    static func path(_ settings: Settings) -> String { path(in: settings.dataDirectoryPath) }
}

/// Encodes and decodes the JSON that operators and their tools read: keys in `snake_case`, in alphabetical order.
package enum OperationsJSON {
    /// Encodes a value; property names such as `expiresAt` become keys such as `expires_at`.
    ///
    /// - Throws: The errors of the value's own `encode`.
    package static func encode(_ value: some Encodable) throws -> Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.withoutEscapingSlashes, .sortedKeys]
        encoder.keyEncodingStrategy = .convertToSnakeCase
        return try encoder.encode(value)
    }

    /// Decodes the output of `encode`.
    ///
    /// - Throws: `DecodingError`. Its text may contain values, which may be secret: show its coding path only.
    package static func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        return try decoder.decode(type, from: data)
    }
}

/// A process that connected to the control socket: its user id and process id at that time.
struct Requester: Hashable, Sendable, CustomStringConvertible {
    private let user: UInt32
    private let processID: Int32

    /// The peer of a connection (unix(7), SO_PEERCRED).
    init(connectedTo descriptor: Int32) {
        // The fields of struct ucred, which glibc declares only with _GNU_SOURCE.
        var credentials: (number: Int32, user: UInt32, group: UInt32) = (0, .max, .max)
        var length = socklen_t(MemoryLayout.size(ofValue: credentials))
        _ = unsafe getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &length)
        (user, processID) = (credentials.user, credentials.number)
    }

    var description: String { "uid \(user), process \(processID) over control.sock" }

    /// Who it is in the audit log.
    var actor: AuditEvent.Actor { .operator(uid: user) }
}
