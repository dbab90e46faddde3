import Audit
import TokenService
package import TokenStore

/// Tells a running server that a command has added or removed an API key, so that its logs say who did it.
package struct APIKeyChange: StoreRequest {
    package static let name = "key-change"
    package static let path = "/key-change"
    private let isAddition: Bool
    /// The key's name.
    let name: String

    package struct Reply: Codable, Sendable {
        /// Why the server cannot use the changed file and keeps its previous keys; nil if it can.
        let fault: String?
    }

    package init(isAddition: Bool, name: String) {
        self.isAddition = isAddition
        self.name = name
    }

    /// As the audit log calls it; a server records the change when it reads the file.
    var recordedAction: AuditEvent.Action { isAddition ? .addAPIKey : .removeAPIKey }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> Reply {
        // Only a name that a command sends may be logged.
        guard APIKey.isName(name) else { throw .refused("this is not the name of an API key") }
        let (command, done) = isAddition ? ("add", "added") : ("remove", "removed")
        return Reply(fault: await store.loadAPIKeys(("access keys \(command)", "\(name) \(done)")))
    }
}
