package import Cryptography

/// Something that a client, the app's server or an operator did or tried, as the audit log records it.
package struct AuditEvent: Hashable, Sendable {
    /// Whose credential or command it was.
    package enum Actor: Hashable, Sendable {
        /// A user, by the session, the signed token or whatever else the access mode asks for.
        case user
        /// The app's server, by the name of its API key.
        case apiKey(String)
        /// A command, by the id of its Unix user; nil if it is not known.
        case `operator`(uid: UInt32?)
        /// Facebook, which says that somebody has left the app there.
        case facebook
        /// A signal to the server, by its name; nobody can tell who has sent it.
        case signal(String)
        /// This server, by itself.
        case server
        /// Nobody: the credential was missing or unknown.
        case none
    }

    /// The words are part of the file format and stay as they are.
    package enum Action: String, Sendable, CaseIterable {
        case read = "read_token"
        case store = "store_token"
        /// Exchanges a token at its provider for a new one.
        case refresh = "refresh_token"
        case remove = "remove_token"
        /// Lists tokens, whoever's they are.
        case list = "list_tokens"
        /// Reads tokens with their contents, whoever's they are.
        case export = "export_tokens"
        /// Reads all rows of this store, to copy them to another one.
        case copyFrom = "copy_from_store"
        /// Fills this store with the rows of another one.
        case copyTo = "copy_to_store"
        case createSession = "create_session"
        case listSessions = "list_sessions"
        case endSession = "end_session"
        case endSessions = "end_sessions"
        case erase = "erase_user"
        /// A request that was refused before it was clear what it asks for.
        case authenticate
        case backUp = "back_up_store"
        case restore = "restore_store"
        /// Adds a key to the key ring; the next two are about such a key as well.
        case addKey = "add_key"
        case useKey = "use_key"
        case retireKey = "retire_key"
        case rekey = "rekey_store"
        case addAPIKey = "add_api_key"
        case removeAPIKey = "remove_api_key"
        case reload
        case drain

        /// Whether the action changes what is stored.
        package var isChange: Bool {
            switch self {
            case .store, .refresh, .remove, .createSession, .endSession, .endSessions, .erase, .copyTo, .restore,
                .addKey,
                .useKey, .retireKey, .rekey, .addAPIKey, .removeAPIKey:
                true
            case .read, .list, .export, .copyFrom, .listSessions, .authenticate, .backUp, .reload, .drain: false
            }
        }

        /// Whether the action is recorded even if only changes are.
        var isAlwaysRecorded: Bool {
            switch self {
            case .export, .copyFrom, .backUp, .reload, .drain: true
            default: isChange
            }
        }
    }

    package enum Outcome: Hashable, Sendable {
        case ok
        /// There was nothing to read, to remove or to end.
        case notFound
        /// `If-Match` or `If-None-Match` did not allow it.
        case preconditionFailed
        /// Refused. The reason is a fixed word in snake_case such as `expired`, never text from a client.
        case denied(_ reason: String)
        /// The server could not do it.
        case failed
    }

    package var action: Action
    package var outcome: Outcome
    package var actor: Actor
    /// The user whose token or sessions are concerned.
    var user: AuditPseudonym?
    var session: AuditPseudonym?
    /// The key that the event is about: its name or its number.
    var key: String?
    /// The client's address.
    package var address: String?
    package var requestID: String?
    /// How many events of one client and kind the line stands for; nil if it stands for a single event.
    var count: UInt64?

    package init(
        _ action: Action, _ outcome: Outcome, by actor: Actor, user: AuditPseudonym? = nil,
        session: AuditPseudonym? = nil, key: String? = nil, address: String? = nil, requestID: String? = nil
    ) {
        self.action = action
        self.outcome = outcome
        self.actor = actor
        self.user = user
        self.session = session
        self.key = key
        self.address = address
        self.requestID = requestID
    }
}

/// Which events are recorded.
package enum AuditEvents: String, Sendable, CaseIterable {
    /// Everything except reads that were not denied.
    case changes
    case all

    /// Whether an event is recorded; callers ask before they make it.
    package func includes(_ action: AuditEvent.Action, _ outcome: AuditEvent.Outcome) -> Bool {
        if self == .all || action.isAlwaysRecorded { return true }
        return switch outcome {
        case .denied: true
        case .ok, .notFound, .preconditionFailed, .failed: false
        }
    }
}

/// An event of the log itself, which is recorded like any other event.
struct LogEvent {
    let action: Action
    /// What a start has found; nil for other events.
    var finding: Finding?
    /// Bytes of an incomplete line that a start has removed; nil if there were none.
    var removedBytes: Int?
    /// How many events were lost before lines could be written again; nil for other events.
    var lostEvents: UInt64?

    /// A start of the server.
    static func opened(_ finding: Finding, removedBytes: Int) -> LogEvent {
        LogEvent(action: .openLog, finding: finding, removedBytes: removedBytes > 0 ? removedBytes : nil)
    }
    /// A new file continues the chain.
    static let continued = LogEvent(action: .continueLog)
    /// The last line of a period; the lines after it have the next key.
    static let keyChanged = LogEvent(action: .changeKey)
    /// The server stops, which also ends the period.
    static let closed = LogEvent(action: .closeLog)
    /// Lines are written again after a failure.
    static func resumed(lostEvents: UInt64) -> LogEvent { LogEvent(action: .resumeLog, lostEvents: lostEvents) }

    /// What a start found in the file.
    enum Finding: String, CaseIterable {
        /// The file ends as the server left it.
        case unaltered
        /// The chain has no lines yet.
        case newChain = "new_chain"
        /// The file is empty and continues the chain of earlier files.
        case newFile = "new_file"
        /// The file does not end with the last line that the server wrote.
        case linesMissing = "lines_missing"
    }

    /// The words are part of the file format.
    enum Action: String, CaseIterable {
        case openLog = "open_log"
        case continueLog = "continue_log"
        case changeKey = "change_key"
        case closeLog = "close_log"
        case resumeLog = "resume_log"

        /// Whether the line is the last one of its period.
        var endsPeriod: Bool { self == .changeKey || self == .closeLog }
    }

    /// Whether the line names the chain and the line before, so that a file that begins with it can be verified alone.
    var isAnchor: Bool { action == .openLog || action == .continueLog }
}

/// Stands for a user or a session in the audit log: the first 16 bytes of an HMAC.
///
/// Only someone who has the key can find out whom it stands for, by trying. The key changes only with the log's first key, so
/// that all lines of a user can be found, even after years.
package struct AuditPseudonym: Hashable, Sendable {
    /// What is hashed; even if their bytes are equal, a user and a session have different pseudonyms.
    package enum Kind: String, Sendable, CaseIterable {
        /// The bytes from which the row key is made.
        case user
        /// The 16 bytes of the session's public id, which is also known when a session is ended by its id.
        case session
    }

    /// As written in the log: 22 characters of base64url.
    package let text: String
}

/// Makes pseudonyms.
///
/// Used by one thread at a time: each loop has its own.
package final class AuditHasher {
    private let hash: KeyedHash

    package init(_ key: SecretKey) {
        hash = KeyedHash(key)
    }

    package func pseudonym(_ kind: AuditPseudonym.Kind, of identifier: Span<UInt8>) -> AuditPseudonym {
        var message: [UInt8] = []
        defer { SecretKey.wipe(&message) }
        // Enough that the array does not grow, which would leave copies in memory.
        message.reserveCapacity(16 + identifier.count)
        // The kinds' names have no NUL.
        message += kind.rawValue.utf8 + [0]
        message.append(span: identifier)
        let mac = hash.mac(of: message.span)
        return AuditPseudonym(text: Base64URL.encode(mac.span.extracting(..<16)))
    }
}
