internal import Audit
package import TokenService

/// Tells a running server that a command has added or removed a key in a file of keys, so that it is known who did it.
package struct KeyChange: Codable, Sendable {
    static let path = "/key-change"

    /// The command that did it: `admin keys` or `access keys`.
    private let command: String
    private let isAddition: Bool
    /// The key's name.
    let name: String

    package init<Scope: BearerKeyScope>(_ scope: Scope.Type, isAddition: Bool, name: String) {
        command = Scope.kind.command
        self.isAddition = isAddition
        self.name = name
    }

    /// Whether the values are such as a command sends, so that they may be logged.
    var isValid: Bool {
        [APIScope.kind.command, AdminScope.kind.command].contains(command) && APIKey.isName(name)
    }

    /// Whether the file has admin keys; otherwise it has API keys.
    var isOfAdminKeys: Bool { command == AdminScope.kind.command }

    /// As the audit log calls it.
    var action: AuditEvent.Action {
        let kind = isOfAdminKeys ? AdminScope.kind : APIScope.kind
        return isAddition ? kind.addition : kind.removal
    }

    /// For the log.
    ///
    /// - Parameter requester: Who did it.
    func text(by requester: String) -> String {
        "\(command) \(isAddition ? "add" : "remove") requested by \(requester): \(name) \(isAddition ? "added" : "removed")"
    }
}

/// The reply to a `KeyChange`.
struct KeyChangeReply: Codable, Sendable {
    /// Why the server cannot use the changed file, so that its previous keys stay in use; nil if it can.
    let fault: String?
}
