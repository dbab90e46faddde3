internal import Audit

/// What the bearer of an admin key may do at `admin.listen`.
package enum AdminScope: String, BearerKeyScope {
    /// Read the status, the metrics and the data of the page.
    case read
    /// Reload and stop the server, look up and delete tokens; and read.
    case steer

    package static var kind: BearerKeyKind {
        BearerKeyKind(
            prefix: "tca_", name: "admin key", plural: "admin keys", setting: "admin.keys_file",
            command: "admin keys", commonScope: "steer", addition: .addAdminKey,
            removal: .removeAdminKey)
    }
}

/// A key of an operator or of a program that monitors the server.
package typealias AdminKey = BearerKey<AdminScope>
package typealias AdminKeys = BearerKeys<AdminScope>
package typealias AdminKeyFile = BearerKeyFile<AdminScope>
package typealias AdminKeyFileError = BearerKeyFileError<AdminScope>

extension AdminKey {
    /// Whether a key with these scopes may do something; a key that may steer may read too.
    package func permits(_ scope: AdminScope) -> Bool {
        scopes.contains(scope) || scopes.contains(.steer)
    }
}
