internal import Synchronization
package import TokenStore

/// The answers to recent requests by unique id, in memory and within a limit of bytes.
///
/// An answer from here is never older than what the store would return. A write removes the answer to its id before the
/// store commits it, and no answer is inserted until the commit is over. An answer made from a read is inserted only if no
/// write has begun since a moment before that read. A write keeps answers to all ids of its shard from being inserted. The
/// memory of an answer is overwritten when the answer is removed.
///
/// Any thread.
package final class AnswerCache: Sendable {
    /// The state of a shard before the store is read, which shows later whether a write has begun since.
    struct Ticket {
        let hash: UInt64
        let version: UInt64
    }

    private static let shardBits: UInt64 = 4

    private let shards: [Shard]

    /// A class, as a mutex cannot be an array's element.
    private final class Shard: Sendable {
        let table: Mutex<AnswerTable>

        init(limit: Int) {
            table = Mutex(AnswerTable(limit: limit))
        }
    }

    /// - Parameter limit: In bytes, those of the tables included; with 0 nothing is kept.
    package init(limit: Int) {
        shards = (0..<(1 << Self.shardBits)).map { _ in Shard(limit: limit >> Int(Self.shardBits)) }
    }

    private func shard(of hash: UInt64) -> Shard {
        shards[Int(hash >> (64 - Self.shardBits))]
    }

    // MARK: - Reading

    /// Lends the answer to an id.
    ///
    /// - Parameters:
    ///   - id: The unique id.
    ///   - now: Seconds since 1970; only evaluated for an answer that expires.
    ///   - body: Copies the answer; must not call the cache.
    /// - Returns: False if there is no answer, or if it has expired.
    func find(_ id: Span<UInt8>, at now: @autoclosure () -> Int64, _ body: (Span<UInt8>) -> Void) -> Bool {
        let hash = id.seededHash
        return shard(of: hash).table.withLock { $0.find(id, hash, at: now(), body) }
    }

    /// The ticket to take before the store is read; nil while a write of the id, or of another one in its shard, is under
    /// way.
    func ticket(for id: Span<UInt8>) -> Ticket? {
        let hash = id.seededHash
        return shard(of: hash).table.withLock { table in
            table.writers == 0 ? Ticket(hash: hash, version: table.version) : nil
        }
    }

    /// Keeps an answer, unless a write has begun since the ticket was taken.
    ///
    /// - Parameters:
    ///   - answer: The answer to the id.
    ///   - id: The unique id.
    ///   - ticket: The id's, taken before the store was read.
    ///   - deadline: When it expires, in seconds since 1970.
    func insert(_ answer: Span<UInt8>, under id: Span<UInt8>, _ ticket: Ticket, until deadline: Int64) {
        shard(of: ticket.hash).table.withLock { table in
            guard table.version == ticket.version else { return }
            table.insert(answer, id, ticket.hash, until: deadline)
        }
    }

    package var counts: CacheCounts {
        var counts = CacheCounts()
        for shard in shards {
            shard.table.withLock { table in
                counts.hits += table.hits
                counts.misses += table.misses
                counts.entries += table.count
                counts.bytes += table.bytes
            }
        }
        return counts
    }
}

extension AnswerCache: WriteObserver {
    /// Removes the answers to ids; until `didWrite` no answer is inserted in their shards.
    package func willWrite(_ ids: [[UInt8]]) {
        for id in ids {
            let hash = id.span.seededHash
            shard(of: hash).table.withLock { table in
                table.version += 1
                table.writers += 1
                table.remove(hash)
            }
        }
    }

    /// Answers do not depend on sessions.
    package func willEnd(_ sessions: [SessionKey]) {}

    /// As `willEnd`.
    package func didEnd(_ sessions: [SessionKey]) {}

    package func didWrite(_ ids: [[UInt8]]) {
        for id in ids {
            shard(of: id.span.seededHash).table.withLock { table in
                table.version += 1
                table.writers -= 1
            }
        }
    }

    /// Removes all answers; those made from reads that have begun already will not be inserted.
    package func didChangeEverything() {
        for shard in shards {
            shard.table.withLock { table in
                table.version += 1
                table.removeAll()
            }
        }
    }
}

/// Hits, misses and size of a cache.
package struct CacheCounts: Sendable {
    package var hits = 0
    package var misses = 0
    package var entries = 0
    package var bytes = 0
}

extension Span<UInt8> {
    /// A hash with a seed that only this process knows, so that no client can choose bytes that collide.
    var seededHash: UInt64 {
        var hasher = Hasher()
        unsafe withUnsafeBytes { unsafe hasher.combine(bytes: $0) }
        return UInt64(bitPattern: Int64(hasher.finalize()))
    }
}
