package import Cryptography
package import Synchronization

/// How often the keys of a ring have sealed.
///
/// With random nonces of 96 bits a key of AES-GCM may seal 2^32 times (NIST SP 800-38D, section 8.3): by then the chance
/// that a nonce was used twice, which would reveal both texts, is one in 2^32.
///
/// A seal is counted here before it is made. A store of one process keeps larger counts: now and then, a commit also stores a
/// count that the next seals stay below. So every stored row is counted, a crash counts up to `step` seals too many, and
/// seals that are not counted after a crash were never written. A store of several processes grants the numbers of seals
/// in blocks, see `GrantedSeals`.
///
/// Any thread.
package final class SealCounts: Sendable {
    /// The most that a key may seal.
    package static let limit: Int64 = 1 << 32
    /// From this count on operators are asked for a new key.
    package static let concern = limit / 4
    /// By how much the stored count is ahead.
    package static let step: Int64 = 1 << 16

    private struct Contents {
        /// The index key of the ring whose seals are counted; nil before the first `load`.
        package var index: SecretKey?
        package var counts: [Int: SealCount] = [:]
    }

    private let contents = Mutex(Contents())
    /// Incremented after each new key.
    package let version = Atomic<UInt64>(0)

    /// Asks for a block of numbers of a key, soon; nil if nobody has to be asked.
    private let request: (@Sendable (_ keyNumber: Int) -> Void)?

    /// - Parameter request: For a store of several processes: has the next block of a key's numbers granted, soon. Called from
    ///   any thread, maybe often; must not wait.
    package init(requesting request: (@Sendable (_ keyNumber: Int) -> Void)? = nil) {
        self.request = request
    }

    /// The count of a key.
    package func count(of keyNumber: Int) -> SealCount {
        contents.withLock { contents in
            if let count = contents.counts[keyNumber] { return count }
            let count = SealCount(keyNumber: keyNumber, requesting: request)
            contents.counts[keyNumber] = count
            version.add(1, ordering: .releasing)
            return count
        }
    }

    package var all: [SealCount] { contents.withLock { Array($0.counts.values) } }

    /// Takes over a store's counts; higher counts of the same ring are kept.
    ///
    /// - Parameters:
    ///   - stored: Seals by the keys' numbers.
    ///   - index: Identifies the ring.
    package func load(_ stored: [Int: Int64], of index: SecretKey) {
        contents.withLock { contents in
            // Sealers that still use another ring's keys keep its counts, which are forgotten here.
            if contents.index?.hasBytes(of: index) != true { contents = Contents(index: index) }
            for (number, seals) in stored {
                let count = contents.counts[number] ?? SealCount(keyNumber: number, requesting: request)
                count.raise(to: seals)
                contents.counts[number] = count
            }
            version.add(1, ordering: .releasing)
        }
    }
}
