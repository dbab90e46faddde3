internal import Synchronization

/// Leave to remember what was made of a token info.
package struct CachePermit: Sendable {
    package let ticket: TokenCache.Ticket
    /// Seconds since 1970 from which on it is not given any more.
    package let deadline: Int64

    package init(ticket: TokenCache.Ticket, deadline: Int64) {
        self.ticket = ticket
        self.deadline = deadline
    }
}

/// Answers to the ids that were asked for lately, in memory and bounded in bytes.
///
/// What it gives is never older than what the database would give. A write takes its id out before it is committed and
/// bars it until that is done; what a reader has read gets in only if no write has begun since before it was read. Both are
/// counted a shard at a time. What leaves is overwritten.
///
/// Any thread.
package final class TokenCache: Sendable {
    /// What a reader takes before it reads, and shows when it has something to put in.
    package struct Ticket: Sendable {
        package let hash: UInt64
        package let version: UInt64
    }

    /// How often it had what was asked for.
    package struct Counts: Codable, Sendable {
        package var hits = 0
        package var misses = 0
        package var entries = 0
        package var bytes = 0
    }

    private static let shardBits: UInt64 = 4
    /// Of what was kept for ever.
    package static let never = Int64.max

    private let shards: [Shard]

    /// A shard with its lock; a class, for a mutex cannot lie in an array.
    private final class Shard: Sendable {
        let table: Mutex<CacheTable>

        init(limit: Int) {
            table = Mutex(CacheTable(limit: limit))
        }
    }

    /// - Parameter limit: Bytes in all, those of the tables included; 0 keeps nothing.
    package init(limit: Int) {
        shards = (0..<(1 << Self.shardBits)).map { _ in Shard(limit: limit >> Int(Self.shardBits)) }
    }

    /// An id's number here: of a function that only this process knows, so that nobody can choose ids that meet.
    package static func hash(of id: Span<UInt8>) -> UInt64 {
        var hasher = Hasher()
        unsafe id.withUnsafeBytes { unsafe hasher.combine(bytes: $0) }
        return UInt64(bitPattern: Int64(hasher.finalize()))
    }

    private func shard(of hash: UInt64) -> Shard {
        shards[Int(hash >> (64 - Self.shardBits))]
    }

    // MARK: - Reading

    /// Lends the answer to an id; false when it is not here, or its time is over.
    ///
    /// - Parameters:
    ///   - id: The unique id.
    ///   - now: Seconds since 1970.
    ///   - body: Takes a copy; must not come back here.
    package func find(_ id: Span<UInt8>, at now: Int64, _ body: (Span<UInt8>) -> Void) -> Bool {
        let hash = Self.hash(of: id)
        return shard(of: hash).table.withLock { $0.find(id, hash, at: now, body) }
    }

    /// To be taken before the database is read; nil while the id, or one near it, is being written.
    package func ticket(for id: Span<UInt8>) -> Ticket? {
        let hash = Self.hash(of: id)
        return shard(of: hash).table.withLock { table in
            table.writers == 0 ? Ticket(hash: hash, version: table.version) : nil
        }
    }

    /// Puts an answer in, unless a write has begun since the ticket was taken.
    ///
    /// - Parameters:
    ///   - answer: The answer to the id.
    ///   - id: The unique id.
    ///   - permit: With a ticket that was taken before the database was read.
    package func insert(_ answer: Span<UInt8>, under id: Span<UInt8>, _ permit: CachePermit) {
        let ticket = permit.ticket
        shard(of: ticket.hash).table.withLock { table in
            guard table.version == ticket.version else { return }
            table.insert(answer, id, ticket.hash, until: permit.deadline)
        }
    }

    // MARK: - Writing

    /// Takes an id out, and keeps it out until `endWrite`.
    package func beginWrite(_ hash: UInt64) {
        shard(of: hash).table.withLock { table in
            table.version += 1
            table.writers += 1
            table.remove(hash)
        }
    }

    package func endWrite(_ hash: UInt64) {
        shard(of: hash).table.withLock { table in
            table.version += 1
            table.writers -= 1
        }
    }

    /// Forgets everything, also what is being read just now.
    package func removeAll() {
        for shard in shards {
            shard.table.withLock { table in
                table.version += 1
                table.removeAll()
            }
        }
    }

    package var counts: Counts {
        var counts = Counts()
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
