import Dispatch
import Glibc
package import System

/// A handle for operators' commands and for tests, which wait for each outcome.
///
/// It is opened for the first request, and stays open.
package actor WaitingHandle {
    private let open: @Sendable (@escaping Deliver) throws(StoreError) -> any StoreHandle
    private let executor = BlockingExecutor(label: "commands")
    private var opened: (any StoreHandle)?
    private var polling: DescriptorPolling?

    package typealias Deliver = @Sendable (@escaping @Sendable () -> Void) -> Void

    /// - Parameter open: As `TokenStore.makeHandle`.
    package init(_ open: @escaping @Sendable (@escaping Deliver) throws(StoreError) -> any StoreHandle) {
        self.open = open
    }

    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe executor.asUnownedSerialExecutor()
    }

    package var handle: any StoreHandle {
        get throws(StoreError) {
            let handle = if let opened { opened } else { try make() }
            opened = handle
            // If this fails, the next request tries it again: the store knows the handle.
            if polling == nil, let descriptor = handle.descriptor {
                polling = try DescriptorPolling(descriptor, on: executor) { [weak self] in
                    self?.assumeIsolated { $0.proceed() }
                }
            }
            return handle
        }
    }

    private func make() throws(StoreError) -> any StoreHandle {
        try open { [executor, weak self] work in
            executor.run { [weak self] in
                work()
                self?.assumeIsolated { $0.opened?.flush() }
            }
        }
    }

    /// Does the work that the handle's descriptor announces, like a turn of an event loop.
    private func proceed() {
        opened?.proceed()
        opened?.flush()
    }

    /// Begins a request, hands it over and waits for its outcome.
    package func outcome<Value: Sendable>(
        of begin: (any StoreHandle, Completion<Value>) throws(StoreError) -> Void
    ) async throws(StoreError) -> Value {
        let handle = try handle
        let outcome: Result<Value, StoreError> = await withCheckedContinuation { continuation in
            let completion = Completion<Value> { continuation.resume(returning: $0) }
            do throws(StoreError) {
                try begin(handle, completion)
            } catch {
                completion(.failure(error))
            }
            handle.flush()
        }
        return try outcome.get()
    }

    /// How many changes, and roughly how many bytes of memory for them, are handed over together at most: less than any
    /// queue may hold.
    private static let (changesTogether, bytesTogether) = (256, 256 << 10)

    /// Makes changes in batches, and waits for their outcomes.
    ///
    /// - Parameter size: Bytes that a change takes while it waits.
    package func outcomes<Change, Value: Sendable>(
        of changes: [Change], size: (Change) -> Int,
        begin: (any StoreHandle, Change, Completion<Value>) -> Void
    ) async -> [Result<Value, StoreError>] {
        let handle: any StoreHandle
        do {
            handle = try self.handle
        } catch {
            return changes.map { _ in .failure(error) }
        }
        var outcomes: [Result<Value, StoreError>] = []
        while outcomes.count < changes.count {
            var bytes = 0
            let batch = changes[outcomes.count...].prefix(Self.changesTogether).prefix { change in
                defer { bytes += size(change) }
                return bytes < Self.bytesTogether
            }
            outcomes += await withCheckedContinuation { continuation in
                var found = [Result<Value, StoreError>?](repeating: nil, count: batch.count)
                var missing = batch.count
                for (place, change) in batch.enumerated() {
                    begin(
                        handle, change,
                        Completion { outcome in
                            found[place] = outcome
                            missing -= 1
                            if missing == 0 { continuation.resume(returning: found.compactMap(\.self)) }
                        })
                }
                handle.flush()
            }
        }
        return outcomes
    }

    // MARK: - Tokens

    /// A token info as it is stored, when it was written, in seconds since 1970, and its version.
    package typealias Found = (info: [UInt8], writtenAt: Int64, version: TokenVersion)

    /// The token info of an id; nil if nothing is stored under it.
    package func fetch(_ id: [UInt8]) async throws(StoreError) -> [UInt8]? { try await find(id)?.info }

    /// What is stored under an id; nil if nothing is.
    package func find(_ id: [UInt8]) async throws(StoreError) -> Found? {
        let fetched: Fetched = try await outcome { (handle, completion) throws(StoreError) in
            let fetched = try handle.fetch(id, upTo: .max, if: nil, orLater: { completion })
            if let fetched { completion(.success(fetched)) }
        }
        guard case .found(let info, let writtenAt, _, let version) = fetched else { return nil }
        return (info, writtenAt, version)
    }

    /// Stores tokens, replacing those of the same id; they are durable when it returns.
    ///
    /// - Parameters:
    ///   - tokens: The tokens, and when each was written, in seconds since 1970; nil for now.
    ///   - keepsNewer: As in `WriteCondition`; a token without a time is then stored only if there is none under its id.
    /// - Returns: An outcome for each.
    package func store(
        _ tokens: [(token: Token, writtenAt: Int64?)], keepsNewer: Bool
    ) async -> [Result<Void, StoreError>] {
        await outcomes(
            of: tokens, size: { Token.waitingBytes(id: $0.token.id, info: $0.token.info) },
            begin: { handle, written, completion in
                let condition =
                    keepsNewer && written.writtenAt == nil
                    ? WriteCondition(match: .missing) : WriteCondition(keepsNewer: keepsNewer)
                handle.store(
                    written.token.info, under: written.token.id, writtenAt: written.writtenAt,
                    if: condition, completion: completion.taking { _ in })
            })
    }

    /// Removes tokens.
    ///
    /// - Returns: For each id, whether a token was stored under it.
    package func remove(_ ids: [[UInt8]]) async -> [Result<Bool, StoreError>] {
        await outcomes(
            of: ids, size: { Token.waitingBytes(id: $0, info: []) },
            begin: { handle, id, completion in handle.remove(id, if: WriteCondition(), completion: completion) })
    }

    /// See `StoreHandle`.
    package var unixTime: Int64 { get throws(StoreError) { try handle.unixTime } }
}

/// Watches a handle's descriptor, as an event loop does in a server.
package final class DescriptorPolling {
    private let source: any DispatchSourceRead

    /// - Parameters:
    ///   - descriptor: May be closed before this object ends: a copy is watched.
    ///   - executor: Where `proceed` is called, while the descriptor is readable.
    package init(
        _ descriptor: Int32, on executor: BlockingExecutor, proceed: @escaping @Sendable () -> Void
    ) throws(StoreError) {
        let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        guard copy >= 0 else {
            throw .unavailable(StoreFault("no descriptor is left for commands: \(SystemError.reason(errno))"))
        }
        source = DispatchSource.makeReadSource(fileDescriptor: copy, queue: executor.queue)
        source.setEventHandler(handler: proceed)
        source.setCancelHandler { close(copy) }
        source.activate()
    }

    deinit {
        source.cancel()
    }
}
