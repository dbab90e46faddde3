internal import Audit
internal import Settings
internal import TokenStore

/// Records in the audit log what operators' commands do with users' tokens and sessions, and with the store and its keys.
///
/// Any thread; calls wait for the disk.
struct OperatorTrail: Sendable {
    private let log: AuditLog
    private let actor: AuditEvent.Actor
    private let settings: @Sendable () -> Settings.Audit

    /// - Parameters:
    ///   - log: The process's.
    ///   - actor: Whose commands they are.
    ///   - settings: Those in force; called for each event, as a reload may change them.
    init(
        _ log: AuditLog, by actor: AuditEvent.Actor = .operator(uid: nil),
        _ settings: @escaping @Sendable () -> Settings.Audit
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
        /// The name or number of the key that is concerned.
        var key: String?

        init(
            _ action: AuditEvent.Action, _ outcome: AuditEvent.Outcome, user: [UInt8]? = nil,
            session: SessionID? = nil, key: String? = nil
        ) {
            self.action = action
            self.outcome = outcome
            self.user = user
            self.session = session
            self.key = key
        }
    }

    /// Throws if the action would have to be recorded, and cannot be: then it must not begin.
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

    /// Records deeds: all of them or, with an error, none.
    func record(_ deeds: [Deed]) throws(StoreError) {
        let settings = settings()
        let recorded = deeds.filter { settings.events.includes($0.action, $0.outcome) }
        guard !recorded.isEmpty else { return }
        do throws(AuditError) {
            // A command may go on on another thread, and a hasher belongs to one.
            let hasher = try log.makeHasher()
            try log.append(
                recorded.map { deed in
                    // Hashing fails only without memory.
                    AuditEvent(
                        deed.action, deed.outcome, by: actor,
                        user: deed.user.flatMap { try? hasher.pseudonym(.user, of: $0.span) },
                        session: deed.session.flatMap { try? hasher.pseudonym(.session, of: $0.bytes.span) },
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

    /// Performs one action, unless it could not be recorded, and records how it ended.
    ///
    /// - Parameter outcome: What the result says of the outcome, and what it tells of the user and the session.
    func recording<Result>(
        _ action: AuditEvent.Action, user: [UInt8]? = nil, session: SessionID? = nil, key: String? = nil,
        _ body: () async throws(StoreError) -> Result, _ complete: (Result, inout Deed) -> Void = { _, _ in }
    ) async throws(StoreError) -> Result {
        try permit(action)
        var deed = Deed(action, .ok, user: user, session: session, key: key)
        let result: Result
        do throws(StoreError) {
            result = try await body()
        } catch {
            deed.outcome = Self.outcome(of: error)
            // Why it failed is what the operator has to know.
            try? record([deed])
            throw error
        }
        complete(result, &deed)
        try record([deed])
        return result
    }

    static func outcome(of error: StoreError) -> AuditEvent.Outcome {
        switch error {
        case .newer, .preconditionFailed: .preconditionFailed
        default: .failed
        }
    }
}
