package import Audit

/// What the bearer of a key may do; a kind of keys has its own scopes.
package protocol BearerKeyScope: RawRepresentable<String>, CaseIterable, Hashable, Sendable {
    /// The kind of keys that have these scopes.
    static var kind: BearerKeyKind { get }
}

/// What a kind of keys is called, and where operators find it.
package struct BearerKeyKind: Sendable {
    /// Begins the secret of each key.
    let prefix: String
    /// Such as `API key`.
    package let name: String
    package let plural: String
    /// The setting that names the file.
    package let setting: String
    /// The command that makes keys, without the program's name.
    package let command: String
    /// A scope that most keys have, for examples.
    package let commonScope: String
    /// What the audit log calls it when a key is added, and when one is removed.
    package let addition: AuditEvent.Action
    package let removal: AuditEvent.Action
}
