internal import Audit
internal import TokenService

/// Tells a running server that a command has added or removed an API key, so that it is known who did it.
package struct KeyChange: Codable, Sendable {
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

/// The reply to a `KeyChange`.
struct KeyChangeReply: Codable, Sendable {
    /// Why the server cannot use the changed file, so that its previous keys stay in use; nil if it can.
    let fault: String?
}
