internal import TokenStore

/// What a handle calls with the outcome of a change.
///
/// An enum, as a closure around a caller's closure would cost every write an allocation.
enum ChangeCompletion {
    case stored((Result<TokenVersion, StoreError>) -> Void)
    case removed((Result<Bool, StoreError>) -> Void)
    case created((Result<CreatedSession, StoreError>) -> Void)
    case ended((Result<EndedSession?, StoreError>) -> Void)
    case endedAll((Result<Int, StoreError>) -> Void)
    /// Nobody learns of the outcome.
    case none

    func take(_ outcome: Result<ChangeOutcome, StoreError>) {
        switch (outcome, self) {
        case (.success(.stored(let version)), .stored(let completion)): completion(.success(version))
        case (.success(.removed(let wasThere)), .removed(let completion)): completion(.success(wasThere))
        case (.success(.created(let session)), .created(let completion)): completion(.success(session))
        case (.success(.ended(let session)), .ended(let completion)): completion(.success(session))
        case (.success(.endedAll(let count)), .endedAll(let completion)): completion(.success(count))
        case (_, .none): break
        case (.failure(let error), _): fail(error)
        case (.success, _): preconditionFailure("a change has the outcome of its kind")
        }
    }

    func fail(_ error: StoreError) {
        switch self {
        case .stored(let completion): completion(.failure(error))
        case .removed(let completion): completion(.failure(error))
        case .created(let completion): completion(.failure(error))
        case .ended(let completion): completion(.failure(error))
        case .endedAll(let completion): completion(.failure(error))
        case .none: break
        }
    }
}
