package import Audit

extension Settings {
    /// The audit log.
    package struct Audit: Sendable {
        /// The path of the log; empty for none.
        package var file = ""
        /// The path of the running key; if empty, a file in the data folder.
        package var keyFile = ""
        package var events = AuditEvents.changes
        /// Whether what cannot be recorded is not answered either.
        package var isRequired = true
    }
}
