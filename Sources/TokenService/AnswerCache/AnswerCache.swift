import Cryptography
import Synchronization

/// The answers to recent requests by unique id, in memory and within a limit of bytes.
///
/// An answer from here is never older than what the store would return. A write removes the answer to its id before the
/// store commits it, and no answer is inserted until the commit is over. An answer made from a read is inserted only if no
/// write has begun since a moment before that read. The memory of an answer is overwritten when the answer is removed.
///
/// Any thread.
package final class AnswerCache: Sendable {
    private struct Entry: RecentEntry {
        /// The id, and behind it the answer.
        var bytes: [UInt8]
        /// When it expires, in seconds since 1970.
        let deadline: Int64
        /// The version of the token.
        let version: Int64
        let idLength: UInt32

        mutating func wipe() { SecretKey.wipe(&bytes) }

        func isTo(_ id: Span<UInt8>) -> Bool {
            guard idLength == id.count else { return false }
            for index in id.indices where bytes[index] != id[index] { return false }
            return true
        }
    }

    /// Bytes that an entry takes beside its id and its answer: its slot, up to three free ones, and the allocation's header.
    private static let overhead = 224

    private let answers: RecentTable<Entry>
    private let changes = ChangeVersions()
    /// The store has deleted what expires until this time, in seconds since 1970; the clock may have been set back since.
    private let deletedUntil = Atomic<Int64>(.min)

    /// - Parameter limit: In bytes, those of the tables included; with 0 nothing is kept.
    package init(limit: Int) {
        answers = RecentTable(limit: limit)
    }

    // MARK: - Reading

    /// Lends the answer to an id.
    ///
    /// - Parameters:
    ///   - id: The unique id.
    ///   - now: Seconds since 1970; only evaluated for an answer that expires.
    ///   - body: Copies the answer; must not call the cache.
    /// - Returns: The version of the token; nil if there is no answer, or if it has expired.
    func find(_ id: Span<UInt8>, at now: @autoclosure () -> Int64, _ body: (Span<UInt8>) -> Void) -> Int64? {
        answers.find(id.seededHash) { answer in
            guard answer.isTo(id),
                answer.deadline == .max || answer.deadline > max(now(), deletedUntil.load(ordering: .relaxed))
            else { return nil }
            let bytes = answer.bytes
            body(bytes.span.extracting(droppingFirst: id.count))
            return answer.version
        }
    }

    /// The ticket to take before the store is read.
    func ticket(for id: Span<UInt8>) -> ChangeVersions.Ticket { changes.ticket(for: id.seededHash) }

    /// Keeps an answer, unless a write was under way when the ticket was taken, or has begun since.
    ///
    /// - Parameters:
    ///   - answer: The answer to the id.
    ///   - id: The unique id.
    ///   - ticket: The id's, taken before the store was read.
    ///   - deadline: When it expires, in seconds since 1970.
    ///   - version: The token's.
    func insert(
        _ answer: Span<UInt8>, under id: Span<UInt8>, _ ticket: ChangeVersions.Ticket, until deadline: Int64,
        version: Int64
    ) {
        answers.insert(under: ticket.hash, cost: id.count + answer.count + Self.overhead) {
            // While the table is locked: a write that begins later removes what is inserted now.
            guard changes.isCurrent(ticket) else { return nil }
            var bytes: [UInt8] = []
            bytes.reserveCapacity(id.count + answer.count)
            bytes.append(span: id)
            bytes.append(span: answer)
            return Entry(bytes: bytes, deadline: deadline, version: version, idLength: UInt32(id.count))
        }
    }

    package var counts: CacheCounts { answers.counts }
}

// MARK: - The store's reports

extension AnswerCache {
    /// Removes the answers to ids; until `didWrite` none is inserted.
    func willWrite(_ ids: [[UInt8]]) {
        for id in ids {
            let hash = id.span.seededHash
            // In this order, because an answer that is inserted in between would stay in the other.
            changes.begin(hash)
            answers.remove(hash)
        }
    }

    func didWrite(_ ids: [[UInt8]]) {
        for id in ids { changes.end(id.span.seededHash) }
    }

    /// From now on, answers that expire by a time are not found.
    func willExpire(until unixTime: Int64) { deletedUntil.max(unixTime, ordering: .relaxed) }

    /// Removes all answers; those made from reads that have begun already will not be inserted.
    func didChangeEverything() {
        changes.changeEverything()
        answers.removeAll()
    }
}

/// Hits, misses and size of a cache.
package struct CacheCounts: Sendable {
    package var hits = 0
    package var misses = 0
    package var entries = 0
    package var bytes = 0

    package init() {}
}

extension Span<UInt8> {
    /// A hash with a seed that only this process knows, so that no client can choose bytes that collide.
    var seededHash: Int {
        var hasher = Hasher()
        unsafe withUnsafeBytes { unsafe hasher.combine(bytes: $0) }
        return hasher.finalize()
    }
}
