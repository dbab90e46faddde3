import Synchronization
import Testing

@testable import TokenStore

@Suite struct GrantedSealsTests {
    private static let step = SealCounts.step

    /// Counts requests for blocks.
    private final class Requests: Sendable {
        private let numbers = Mutex<[Int]>([])

        var all: [Int] { numbers.withLock(\.self) }

        func add(_ number: Int) { numbers.withLock { $0.append(number) } }
    }

    private func count(_ requests: Requests) -> (SealCount, GrantedSeals) {
        let counts = SealCounts { requests.add($0) }
        let count = counts.count(of: 7)
        guard let granted = count.granted else { preconditionFailure("it asks for blocks") }
        return (count, granted)
    }

    @Test func `without a block a seal fails, and asks for one`() throws {
        let requests = Requests()
        let (count, granted) = count(requests)
        #expect(throws: SealingError.ungranted(keyNumber: 7)) { try count.take() }
        #expect(requests.all == [7])
        #expect(StoreError.sealing(.ungranted(keyNumber: 7)).mayRetry)
        granted.grant(after: 500)
        #expect(try (0..<3).map { _ in try count.take() } == [501, 502, 503])
        #expect(requests.all == [7])
    }

    @Test func `a key without seals left is exhausted`() throws {
        let (count, _) = count(Requests())
        count.raise(to: SealCounts.limit)
        #expect(throws: SealingError.exhausted(keyNumber: 7)) { try count.take() }
    }

    @Test func `the next block is asked for in the middle of one, and numbers go on with it`() throws {
        let requests = Requests()
        let (count, granted) = count(requests)
        granted.grant(after: 0)
        for _ in 0..<Self.step / 2 { _ = try count.take() }
        #expect(requests.all.isEmpty)
        #expect(!granted.needsBlock)
        #expect(try count.take() == Self.step / 2 + 1)
        #expect(requests.all == [7])
        #expect(granted.needsBlock)
        // Others have taken the blocks between.
        granted.grant(after: 9 * Self.step)
        #expect(!granted.needsBlock)
        #expect(granted.left == Self.step + Self.step / 2 - 1)
        for number in Self.step / 2 + 2...Self.step { #expect(try count.take() == number) }
        #expect(try count.take() == 9 * Self.step + 1)
    }

    private final class Shared: Sendable {
        /// The last number of the last block.
        let next = Atomic<Int64>(0)
        /// Tasks that have taken all they want.
        let done = Atomic<Int>(0)
    }

    @Test func `no number is given twice, whoever takes and whatever is granted meanwhile`() async throws {
        let shared = Shared()
        let counts = SealCounts { _ in }
        let count = counts.count(of: 1)
        let granted = try #require(count.granted)
        let (takers, each) = (4, Int(5 * Self.step / 4))
        let numbers = await withTaskGroup(of: [Int64].self) { group in
            for _ in 0..<takers {
                group.addTask {
                    var numbers: [Int64] = []
                    while numbers.count < each {
                        if let number = try? count.take() { numbers.append(number) } else { await Task.yield() }
                    }
                    shared.done.add(1, ordering: .relaxed)
                    return numbers
                }
            }
            group.addTask {
                while shared.done.load(ordering: .relaxed) < takers {
                    // Every second block is another server's.
                    if granted.needsBlock {
                        granted.grant(after: shared.next.add(2 * Self.step, ordering: .relaxed).newValue)
                    }
                    await Task.yield()
                }
                return []
            }
            return await group.reduce(into: [Int64]()) { $0 += $1 }
        }
        #expect(numbers.count == takers * each)
        #expect(Set(numbers).count == numbers.count)
        // None of a block that was not granted.
        #expect(numbers.allSatisfy { (($0 - 1) / Self.step) % 2 == 0 })
    }

    @Test func `what is left can be given back, and is then not taken`() throws {
        let (count, granted) = count(Requests())
        #expect(granted.takeRest().isEmpty)
        granted.grant(after: 1_000)
        for _ in 0..<Self.step - 5 { _ = try count.take() }
        granted.grant(after: 1_000_000)
        let rests = granted.takeRest()
        #expect(rests.map(\.before) == [1_000 + Self.step - 5, 1_000_000])
        #expect(rests.map(\.last) == [1_000 + Self.step, 1_000_000 + Self.step])
        #expect(throws: SealingError.self) { try count.take() }
        #expect(granted.takeRest().isEmpty)
        granted.grant(after: 5_000_000)
        #expect(try count.take() == 5_000_001)
    }
}
