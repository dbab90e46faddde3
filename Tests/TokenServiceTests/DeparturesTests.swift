import Glibc
import StoreConformance
import Testing
import TokenStore

@testable import TokenService

@Suite struct DeparturesTests {
    /// A store of which a round of the walk has ended.
    private struct Walked: StoreAdministrator {
        let store: any StoreAdministrator
        var last: WalkReport?

        var keyRing: (any KeyRingAdministrator)? { store.keyRing }
        var handle: WaitingHandle { store.handle }

        func page(after cursor: String?, limit: Int) async throws(StoreError) -> TokenPage {
            try await store.page(after: cursor, limit: limit)
        }

        func statistics() async throws(StoreError) -> StoreStatistics {
            var (statistics, state) = (try await store.statistics(), WalkState())
            state.last = last
            statistics.walk = WalkStatus(state, total: 0)
            return statistics
        }

        func walk(_ progress: @escaping @Sendable (StoreProgress) -> Void) async throws(StoreError) -> WalkReport {
            try await store.walk(progress)
        }

        func verify(
            _ progress: @escaping @Sendable (StoreProgress) -> Void
        ) async throws(StoreError) -> StoreVerification { try await store.verify(progress) }
    }

    private let now = Int64(time(nil))

    private func emptyStore() -> Walked {
        let keyRing = KeyRingFile(path: "/nowhere", credentials: nil, directory: "")
        return Walked(store: MemoryStore(MemoryDisk(), options: StoreOptions(keyRing: keyRing)).administrator)
    }

    private func message(_ user: Int, at time: Int64? = nil) -> SignedRequest {
        SignedRequest(user: "\(user)", issuedAt: time ?? now)
    }

    /// What the walk is told about a token: whether somebody knew what to look for.
    private func inspected(_ departures: Departures) -> Bool {
        let (id, info) = (Array("id".utf8), Array(#"{"TokenInformationUserFBIDKey":1}"#.utf8))
        return departures.inspect(
            id.span, info.span, TokenVersion(rawValue: 0), RowTimes(writtenAt: 0, expiresAt: nil))
    }

    @Test func `people who leave at the same time, at two servers, are all noted once`() async throws {
        let (servers, store) = ([Departures(), Departures()], emptyStore())
        let noted = try await withThrowingTaskGroup(of: Departure.self) { group in
            for user in 0..<200 {
                group.addTask { try await servers[user % 2].note(message(user), erases: user % 3 == 0, in: store) }
            }
            return try await group.reduce(into: [:]) { $0[$1.user] = $1 }
        }
        #expect(noted.count == 200)
        for user in 0..<200 {
            let again = try await servers[(user + 1) % 2].note(message(user), erases: user % 3 == 0, in: store)
            #expect(again.notedAt == noted["\(user)"]?.notedAt && again.version != nil)
        }
    }

    @Test func `only a later message says something new, and a deletion more than a removal`() async throws {
        let (departures, store) = (Departures(), emptyStore())
        _ = try await departures.note(message(1), erases: false, in: store)
        for (time, erases, isNew) in [
            (now, false, false), (now - 5, false, false), (now, true, true), (now, false, false),
            (now + 1, false, true),
        ] {
            let before = try await departures.note(message(1, at: now - 9), erases: false, in: store)
            let departure = try await departures.note(message(1, at: time), erases: erases, in: store)
            #expect((departure.version != before.version) == isNew, "\(time - now) \(erases)")
        }
        let last = try await departures.note(message(1, at: now - 9), erases: false, in: store)
        #expect(last.erases && last.version != nil)
    }

    @Test func `a round counts if it has shown every token to somebody who knows the list`() async throws {
        let departures = Departures()
        #expect(!inspected(departures))
        var (store, report) = (emptyStore(), WalkReport(beganAt: 7))
        #expect(try await Departures.beginningOfLastRound(of: store) == nil)
        store.last = report
        #expect(try await Departures.beginningOfLastRound(of: store) == 7)
        report.hasPassedOver = true
        store.last = report
        #expect(try await Departures.beginningOfLastRound(of: store) == nil)
        _ = try await departures.note(message(1), erases: false, in: store)
        #expect(inspected(departures))
    }

    @Test func `a departure stays until a round has ended that began a day later`() async throws {
        let day = SignedRequest.tolerance
        for (beganAt, isLater) in [(now + day - 3_600, false), (now + day + 3_600, true)] {
            for hasPassedOver in [nil, true] as [Bool?] {
                let departures = Departures()
                var store = emptyStore()
                _ = try await departures.note(message(1), erases: false, in: store)
                var report = WalkReport(beganAt: beganAt)
                report.hasPassedOver = hasPassedOver
                store.last = report
                _ = try await departures.note(message(2), erases: false, in: store)
                let again = try await departures.note(message(1), erases: false, in: store)
                // A departure that was there before has the version that it got then.
                #expect((again.version == nil) == (isLater && hasPassedOver == nil))
            }
        }
    }
}
