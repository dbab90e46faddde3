internal import HTTP
internal import TokenStore

/// What somebody did.
enum AuditAction: String {
    case read, store, remove, createSession, endSession, listSessions, endSessions, erase, authenticate
}

/// What stands in the audit log for a user and a session.
struct AuditNames: Sendable {
    let user: [UInt8]
    let session: [UInt8]
}

package final class AuditTrail {
}
