#if PostgreSQL
internal import System
internal import TokenStore

/// Looks for a session by its key.
final class FindSessionOperation: AnsweredOperation<FoundSession> {
    private let key: SessionKey
    private let rowKey: [UInt8]

    init(
        _ key: SessionKey, rowKey: [UInt8], deadline: MonotonicTime, rows: RowAccess,
        completion: Completion<FoundSession>
    ) {
        (self.key, self.rowKey) = (key, rowKey)
        super.init(.nothing, deadline: deadline, rows: rows, completion: completion)
    }

    override var isWrite: Bool { false }

    override func send(on connection: PostgresConnection) throws(PostgresError) {
        rows.parameters.removeAll()
        rows.parameters.append(rowKey)
        rows.parameters.append(rows.unixTime)
        try Statement.findSession.send(on: connection, rows)
    }

    override func take(_ result: borrowing QueryResult, of statement: Int) {
        outcome = .success(.nothing)
        guard result.rowCount > 0 else { return }
        let row = StoredSession(result, row: 0)
        do throws(StoreError) {
            let opened = try rows.opened(row)
            // A row that is found by the hash of another key was tampered with.
            guard opened.key == key else { throw .sealing(.tampered(keyNumber: row.keyNumber)) }
            outcome = .success(.found(opened.session))
        } catch {
            outcome = .failure(error)
        }
    }
}

/// Reads the sessions of a user.
final class ListSessionsOperation: AnsweredOperation<[UserSession]> {
    private let userKey: [UInt8]

    init(
        of userKey: [UInt8], deadline: MonotonicTime, rows: RowAccess,
        completion: Completion<[UserSession]>
    ) {
        self.userKey = userKey
        super.init([], deadline: deadline, rows: rows, completion: completion)
    }

    override var isWrite: Bool { false }

    override func send(on connection: PostgresConnection) throws(PostgresError) {
        rows.parameters.removeAll()
        rows.parameters.append(userKey)
        rows.parameters.append(rows.unixTime)
        try Statement.listSessions.send(on: connection, rows)
    }

    override func take(_ result: borrowing QueryResult, of statement: Int) {
        var sessions: [UserSession] = []
        do throws(StoreError) {
            for row in 0..<result.rowCount {
                sessions.append(try rows.opened(StoredSession(result, row: row)).session)
            }
            outcome = .success(sessions)
        } catch {
            outcome = .failure(error)
        }
    }
}

/// Stores a session, and ends the oldest ones of its user beyond a number.
final class CreateSessionOperation: AnsweredOperation<CreatedSession> {
    private let row: SessionRow
    private let perUser: Int
    private let sessionNumber: Int64

    init(
        _ row: SessionRow, perUser: Int, deadline: MonotonicTime, rows: RowAccess,
        completion: Completion<CreatedSession>
    ) {
        (self.row, self.perUser) = (row, perUser)
        sessionNumber = rows.state.versions.next().rawValue
        super.init(
            Self.created(row, ended: 0), bytes: Self.waitingBytes + row.user.count, deadline: deadline, rows: rows,
            lockOrder: row.userKey, completion: completion)
    }

    override var statementCount: Int { 3 }

    override func send(on connection: PostgresConnection) throws(PostgresError) {
        rows.parameters.removeAll()
        rows.parameters.append(row.userKey)
        try Statement.lockUser.send(on: connection, rows)
        rows.parameters.removeAll()
        rows.parameters.append(row.key)
        rows.parameters.append(row.id.bytes)
        rows.parameters.append(row.userKey)
        rows.parameters.append(Int64(row.keyNumber))
        rows.parameters.append(row.createdAt)
        rows.parameters.append(row.expiresAt)
        rows.parameters.append(row.usedAt)
        rows.parameters.append(sessionNumber)
        rows.parameters.append(row.user)
        try Statement.createSession.send(on: connection, rows)
        rows.parameters.removeAll()
        rows.parameters.append(row.userKey)
        rows.parameters.append(Int64(max(1, perUser)))
        try Statement.trimSessions.send(on: connection, rows)
    }

    override func take(_ result: borrowing QueryResult, of statement: Int) {
        if statement == 2 { outcome = .success(Self.created(row, ended: result.changedCount)) }
    }

    private static func created(_ row: SessionRow, ended: Int) -> CreatedSession {
        CreatedSession(id: row.id, expiresAt: row.expiresAt, ended: ended)
    }
}

/// Ends a session.
final class EndSessionOperation: AnsweredOperation<EndedSession?> {
    private let id: SessionID

    init(
        _ id: SessionID, deadline: MonotonicTime, rows: RowAccess,
        completion: Completion<EndedSession?>
    ) {
        self.id = id
        super.init(nil, deadline: deadline, rows: rows, completion: completion)
    }

    override func send(on connection: PostgresConnection) throws(PostgresError) {
        rows.parameters.removeAll()
        rows.parameters.append(id.bytes)
        try Statement.endSession.send(on: connection, rows)
    }

    override func take(_ result: borrowing QueryResult, of statement: Int) {
        // What an attempt before has ended counts as well, and a row that does not open ends all the same.
        guard result.rowCount > 0 else { return }
        outcome = .success(EndedSession(id: id, user: try? rows.opened(StoredSession(result, row: 0)).session.user))
    }
}

/// Ends all sessions of a user, and erases its token if that is asked for.
final class EraseOperation: AnsweredOperation<Erasure> {
    private let userKey: [UInt8]
    private let erasesToken: Bool
    private let version: TokenVersion
    private var erasure = Erasure(hadToken: false, sessions: 0)

    init(
        _ userKey: [UInt8], erasesToken: Bool, deadline: MonotonicTime, rows: RowAccess,
        completion: Completion<Erasure>
    ) {
        (self.userKey, self.erasesToken) = (userKey, erasesToken)
        version = rows.state.versions.next()
        super.init(erasure, deadline: deadline, rows: rows, lockOrder: userKey, completion: completion)
    }

    override var statementCount: Int { erasesToken ? 3 : 2 }

    override func send(on connection: PostgresConnection) throws(PostgresError) {
        rows.parameters.removeAll()
        rows.parameters.append(userKey)
        try Statement.lockUser.send(on: connection, rows)
        try Statement.endSessions.send(on: connection, rows)
        guard erasesToken else { return }
        rows.parameters.append(version.rawValue)
        rows.parameters.append(rows.unixTime)
        try Statement.eraseToken.send(on: connection, rows)
    }

    override func take(_ result: borrowing QueryResult, of statement: Int) {
        switch statement {
        // What an attempt before has done counts as well.
        case 1: erasure.sessions = max(erasure.sessions, result.changedCount)
        case 2 where result.rowCount > 0:
            // So that what this server writes from now on is later.
            rows.state.versions.note(TokenVersion(rawValue: result.integer(0, 0)))
            erasure.hadToken = erasure.hadToken || result.integer(0, 1) != 0
        default: break
        }
        outcome = .success(erasure)
    }
}

/// Notes that a session was used; nobody waits for it.
final class NoteUseOperation: Operation {
    private let key: [UInt8]
    private let usedAt: Int64

    init(of key: [UInt8], at usedAt: Int64, deadline: MonotonicTime, rows: RowAccess) {
        (self.key, self.usedAt) = (key, usedAt)
        super.init(bytes: Self.waitingBytes, deadline: deadline, rows: rows, lockOrder: key)
    }

    override func send(on connection: PostgresConnection) throws(PostgresError) {
        rows.parameters.removeAll()
        rows.parameters.append(key)
        rows.parameters.append(usedAt)
        try Statement.noteUse.send(on: connection, rows)
    }
}

extension Operation {
    /// Bytes of memory that an operation takes while it waits, besides what it holds of the request.
    static var waitingBytes: Int { 512 }
}
#endif
