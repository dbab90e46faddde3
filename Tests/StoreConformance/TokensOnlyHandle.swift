import TokenStore

/// A handle for tests that only fetch and store tokens: it refuses to remove them, and what concerns users' sessions and
/// erasing them.
package protocol TokensOnlyHandle: StoreHandle {}

extension TokensOnlyHandle {
    private var refusal: StoreError { .refused("this store only fetches and stores") }

    package var timeLimit: Duration? { nil }

    package func remove(_ id: [UInt8], if condition: WriteCondition, completion: Completion<Bool>) {
        completion(.failure(refusal))
    }

    package func sessionKey(of secret: Span<UInt8>) throws(StoreError) -> SessionKey { throw refusal }

    package func findSession(
        _ key: SessionKey, orLater makeCompletion: () -> Completion<FoundSession>
    ) throws(StoreError) -> FoundSession? {
        throw refusal
    }

    package func noteUse(of key: SessionKey, at unixTime: Int64) {}

    package func createSession(
        _ session: UserSession, _ key: SessionKey, perUser: Int, completion: Completion<Int>
    ) {
        completion(.failure(refusal))
    }

    package func endSession(id: SessionID, completion: Completion<EndedSession?>) {
        completion(.failure(refusal))
    }

    package func endSessions(of user: [UInt8], completion: Completion<Int>) {
        completion(.failure(refusal))
    }

    package func erase(_ user: [UInt8], completion: Completion<Erasure>) {
        completion(.failure(refusal))
    }

    package func listSessions(of user: [UInt8], completion: Completion<[UserSession]>) {
        completion(.failure(refusal))
    }
}
