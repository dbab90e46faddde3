import TokenStore

/// A token that is to be written.
struct Write {
    let id: Int
    /// In the ledger.
    let number: Int
    let completion: Completion<TokenVersion>
}

/// A store's writing thread, which commits all that waits in one transaction, one step at a time.
struct Writer {
    private enum Step {
        case waits
        /// The observer knows of the group.
        case announced
        /// The group is committed, or has failed.
        case ended([Result<TokenVersion, StoreError>])
    }

    var queue: [Write] = []
    private var group: [Write] = []
    private var step = Step.waits

    /// Takes one step; false if there is nothing to write.
    ///
    /// - Parameters:
    ///   - store: Whose observer is told.
    ///   - fails: Whether a commit fails now.
    ///   - finish: Takes the calls of completions.
    mutating func act(_ store: SimulatedStore, fails: Bool, _ finish: (@escaping () -> Void) -> Void) -> Bool {
        switch step {
        case .waits:
            guard !queue.isEmpty else { return false }
            (group, queue) = (queue, [])
            step = .announced
            store.observer?.willWrite(ids)
            store.world.note("store begins to write", group.count)
        case .announced:
            let world = store.world
            let now = world.kernel.clock.unixTime
            let results: [Result<TokenVersion, StoreError>] = group.map { write in
                if fails { return .failure(.write(StoreFault("simulated"))) }
                if world.choices.storeFails && world.random.happens(oneIn: 8) { return .failure(.full(.tokens(1))) }
                world.ledger.commit(write.number, deadline: world.choices.retention.map { now + $0 } ?? .max)
                return .success(TokenVersion(rawValue: Int64(write.number)))
            }
            step = .ended(results)
            world.note("store commits", fails ? 0 : group.count)
        case .ended(let results):
            store.observer?.didWrite(ids)
            for (write, result) in zip(group, results) { finish { write.completion(result) } }
            (group, step) = ([], .waits)
        }
        return true
    }

    private var ids: [[UInt8]] { group.map { Array("id\($0.id)".utf8) } }
}
