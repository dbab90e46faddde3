import TokenStore

/// A handle with a thread of its own, as far as the store can tell: an actor that hands writes over at once.
package actor ConformanceHandle {
    private let executor = BlockingExecutor(label: "handle")
    private var handle: (any StoreHandle)?
    private var polling: DescriptorPolling?
    /// The numbers of writes, in the order of their outcomes.
    private var finished: [Int] = []

    package static func open(_ store: any TokenStore) async throws -> ConformanceHandle {
        let actor = ConformanceHandle()
        try await actor.start(store)
        return actor
    }

    package nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    private func start(_ store: any TokenStore) throws {
        let handle = try store.makeHandle { [executor] work in executor.run(work) }
        self.handle = handle
        polling = try handle.descriptor.map { descriptor in
            try DescriptorPolling(descriptor, on: executor) { [weak self] in self?.assumeIsolated { $0.proceed() } }
        }
    }

    /// Has the handle do what its descriptor has announced, as a turn of a loop.
    private func proceed() {
        handle?.proceed()
        handle?.flush()
    }

    var opened: any StoreHandle {
        get throws {
            guard let handle else { throw StoreError.closed }
            return handle
        }
    }

    package func fetch(_ id: [UInt8], upTo limit: Int = .max, if session: SessionKey? = nil) async throws -> Fetched {
        let handle = try opened
        // As at the end of a turn: what is asked for is sent, and nothing stays open.
        defer { handle.flush() }
        Task { self.flush() }
        let outcome: Result<Fetched, StoreError> = await withCheckedContinuation { continuation in
            do throws(StoreError) {
                let found = try handle.fetch(id, upTo: limit, if: session) {
                    Completion { continuation.resume(returning: $0) }
                }
                if let found { continuation.resume(returning: .success(found)) }
            } catch {
                continuation.resume(returning: .failure(error))
            }
        }
        return try outcome.get()
    }

    package func get(_ id: String) async throws -> String? {
        guard case .found(let info, _, _) = try await fetch(Array(id.utf8)) else { return nil }
        return String(decoding: info, as: UTF8.self)
    }

    /// Stores a value; others may store meanwhile, and share its commit.
    package func put(_ value: String, under id: String) async throws {
        try await put(Array(value.utf8), under: Array(id.utf8))
    }

    package func put(_ value: [UInt8], under id: [UInt8]) async throws {
        let handle = try opened
        // Runs as soon as the call below waits, like a loop's end of turn.
        Task { self.flush() }
        let outcome = await withCheckedContinuation { continuation in
            handle.store(
                value, under: id, if: WriteCondition(), completion: Completion { continuation.resume(returning: $0) })
        }
        _ = try outcome.get()
    }

    /// Begins writes without handing them over.
    ///
    /// - Returns: The outcomes that came at once, by the writes' numbers.
    package func begin(_ writes: [(id: String, value: String)], session: SessionKey? = nil) throws -> [Int] {
        let handle = try opened
        finished = []
        for (number, write) in writes.enumerated() {
            handle.store(
                Array(write.value.utf8), under: Array(write.id.utf8), if: WriteCondition(session: session),
                completion: Completion { _ in self.finished.append(number) })
        }
        return finished
    }

    /// Hands over what was begun.
    package func flush() {
        handle?.flush()
    }

    /// The numbers of the writes that have ended, once for each completion.
    package var outcomes: [Int] { finished }
}
