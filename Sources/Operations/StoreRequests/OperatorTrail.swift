import Audit
import Glibc
import Logging
import Server
import Settings
import System
import TokenStore

/// Records in the audit log what operators' commands do with users' tokens and sessions, and with the store and its keys.
///
/// Any thread; calls wait for the disk.
struct OperatorTrail: Sendable {
    let log: AuditLog
    private let actor: AuditEvent.Actor
    private let settings: @Sendable () -> Settings.Audit

    /// - Parameters:
    ///   - log: The audit log of this process.
    ///   - actor: Who gives the commands.
    ///   - settings: Returns the settings in force; called for each event, as a reload may change them.
    init(
        _ log: AuditLog, by actor: AuditEvent.Actor, _ settings: @escaping @Sendable () -> Settings.Audit
    ) {
        self.log = log
        self.actor = actor
        self.settings = settings
    }

    /// What was done, to whom, and how it ended.
    struct Deed {
        var action: AuditEvent.Action
        var outcome: AuditEvent.Outcome
        var user: [UInt8]?
        var session: SessionID?
        /// The name or number of the key.
        var key: String?
    }

    /// Throws if the action must not begin, because it must be recorded and the audit log cannot be written.
    func permit(_ action: AuditEvent.Action) throws(StoreError) {
        let settings = settings()
        guard settings.isRequired, settings.events.includes(action, .ok), log.figures.isFailing else { return }
        throw .refused(
            """
            nothing was done: the audit log cannot be written, and audit.required is on; the server's log says why it \
            cannot
            """
        )
    }

    /// Records all deeds or, if it throws, none.
    func record(_ deeds: [Deed]) throws(StoreError) {
        let settings = settings()
        let recorded = deeds.filter { settings.events.includes($0.action, $0.outcome) }
        guard !recorded.isEmpty else { return }
        do {
            // Not kept: a hasher belongs to one thread, and a command may continue on another.
            let hasher = log.makeHasher()
            try log.append(
                recorded.map { deed in
                    AuditEvent(
                        deed.action, deed.outcome, by: actor,
                        user: deed.user.map { hasher.pseudonym(.user, of: $0.span) },
                        session: deed.session.map { hasher.pseudonym(.session, of: $0.bytes.span) },
                        key: deed.key)
                })
        } catch {
            guard settings.isRequired else { return }
            let isChange = recorded.contains { $0.action.isChange }
            throw .refused(
                isChange
                    ? "the command was carried out, but the audit log could not record it: \(error)"
                    : "the audit log cannot record this, and audit.required is on: \(error)"
            )
        }
    }
}

/// What an operator's request works with: the store, the audit log if there is one, and who is told of progress.
package struct AuditedStore: Sendable {
    let administrator: any StoreAdministrator
    /// Nil without an audit log.
    let trail: OperatorTrail?
    /// Called repeatedly with the progress of requests that take long.
    var progress: @Sendable (StoreProgress) -> Void = { _ in }
    /// Logs a change of the API keys and loads the changed file; returns why it cannot be used, or nil.
    var loadAPIKeys: @Sendable (OperatorAct) async -> String? = { _ in nil }

    init(_ administrator: any StoreAdministrator, _ trail: OperatorTrail?) {
        (self.administrator, self.trail) = (administrator, trail)
    }

    var handle: WaitingHandle { administrator.handle }
}

/// Nothing is recorded without an audit log, and for a request without an action.
extension OperatorTrail? {
    /// Performs one action, unless it could not be recorded, and records how it ended.
    ///
    /// - Parameter complete: Adds to the deed what only the result tells, such as that nothing was found.
    func recording<Value>(
        _ action: AuditEvent.Action?, user: [UInt8]? = nil, session: SessionID? = nil, key: String? = nil,
        _ body: @autoclosure () async throws(StoreError) -> Value,
        _ complete: (Value, inout OperatorTrail.Deed) -> Void = { _, _ in }
    ) async throws(StoreError) -> Value {
        guard let action else { return try await body() }
        let deed = OperatorTrail.Deed(action: action, outcome: .ok, user: user, session: session, key: key)
        return try await recording(
            [deed],
            { do throws(StoreError) { return [.success(try await body())] } catch { return [.failure(error)] } },
            complete)[0].get()
    }

    /// Performs an action on tokens of several users, unless it could not be recorded, and records how it ended for each.
    ///
    /// - Parameter body: Returns an outcome for each user.
    func recording<Value>(
        _ action: AuditEvent.Action?, users: [[UInt8]], _ body: @autoclosure () async -> [Result<Value, StoreError>],
        _ complete: (Value, inout OperatorTrail.Deed) -> Void = { _, _ in }
    ) async throws(StoreError) -> [Result<Value, StoreError>] {
        guard let action else { return await body() }
        let deeds = users.map { OperatorTrail.Deed(action: action, outcome: .ok, user: $0) }
        return try await recording(deeds, { await body() }, complete)
    }

    private func recording<Value>(
        _ planned: [OperatorTrail.Deed], _ body: () async -> [Result<Value, StoreError>],
        _ complete: (Value, inout OperatorTrail.Deed) -> Void
    ) async throws(StoreError) -> [Result<Value, StoreError>] {
        guard let self, let action = planned.first?.action else { return await body() }
        try self.permit(action)
        let outcomes = await body()
        let deeds = zip(planned, outcomes).map { deed, outcome in
            var deed = deed
            switch outcome {
            case .success(let value): complete(value, &deed)
            case .failure(.newer), .failure(.preconditionFailed): deed.outcome = .preconditionFailed
            case .failure: deed.outcome = .failed
            }
            return deed
        }
        do {
            try self.record(deeds)
        } catch {
            // If nothing was done, the operator gets the errors of the action, not one of the audit log.
            guard deeds.allSatisfy({ $0.outcome == .failed }) else { throw error }
        }
        return outcomes
    }
}

extension OperatorTrail {
    /// Opens the audit log of a server that does not run, for a command that does what the server would record.
    ///
    /// It is opened before the command changes anything, so that nothing happens that cannot be recorded. The caller has locked the
    /// data folder, which shows that no server has the log open, and closes the log.
    ///
    /// - Parameters:
    ///   - settings: The server's.
    ///   - action: What the command is about to do; nil if that is never recorded.
    ///   - logger: Receives what an operator should know of the log.
    /// - Returns: Nil if the settings name no audit log, or leave this action out.
    static func open(
        _ settings: Settings, for action: AuditEvent.Action?, _ logger: Logger
    ) throws(StartError) -> OperatorTrail? {
        guard let action, settings.audit.events.includes(action, .ok) else { return nil }
        do {
            guard let log = try Server.openAuditLog(settings, logger) else {
                warnOfMissingSetting(settings, logger)
                return nil
            }
            return OperatorTrail(log, by: .operator(uid: getuid())) { settings.audit }
        } catch {
            throw StartError("nothing was done: \(error)")
        }
    }

    private static func warnOfMissingSetting(_ settings: Settings, _ logger: Logger) {
        guard FileStatus.exists(settings.auditKeyPath) else { return }
        logger.warning(
            """
            this is recorded nowhere: audit.file is not set, although \(settings.auditKeyPath) shows that a server here has an \
            audit log; give commands the server's settings with --config
            """
        )
    }
}
