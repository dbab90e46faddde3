#if PostgreSQL
import System
import Testing

@testable import PostgresStore

/// Which host is asked when, and which answer counts; times are in milliseconds.
struct PrimarySearchTests {
    private func at(_ milliseconds: UInt64) -> MonotonicTime {
        MonotonicTime(nanoseconds: (1_000 + milliseconds) * 1_000_000)
    }

    private func server(_ host: Int, _ timeline: Int64 = 0) -> ServerIdentity {
        ServerIdentity(address: "db\(host):5432", timeline: timeline)
    }

    private let refused = PostgresError.connection(
        "connection to server at \"db\", port 5432 failed: Connection refused")

    /// The hosts of the dials that begin now.
    private func hosts(_ search: inout PrimarySearch, _ orders: Int = 1, at time: UInt64) -> [Int] {
        search.dials(for: orders, replaceOnly: false, at: at(time)).map(\.host)
    }

    /// A search that has found the server on host 0, on timeline 1, at 10 ms.
    private func found(hosts count: Int) -> PrimarySearch {
        var search = PrimarySearch(hosts: count)
        search.noteOrder(isFirst: true, isReplacement: false, at: at(0))
        #expect(hosts(&search, at: 0) == Array(0..<count))
        #expect(
            search.take(server(0, 1), from: 0, begunAt: at(0), at: at(10))
                == .used(isFailover: false))
        for host in 1..<count { search.take(.isStandby, from: host, begunAt: at(0), at: at(11)) }
        return search
    }

    @Test func `the last primary is asked alone at first, and then all hosts`() {
        var search = found(hosts: 3)
        search.noteOrder(isFirst: true, isReplacement: false, at: at(1_000))
        #expect(hosts(&search, 2, at: 1_000) == [0, 0])
        #expect(hosts(&search, 2, at: 1_299).isEmpty)
        #expect(hosts(&search, 2, at: 1_300) == [1, 2])
        // A dial without an answer does not hold up others.
        #expect(hosts(&search, 2, at: 2_000) == [0, 0])
        search.noteLoss(of: server(0, 1), at: at(2_100))
        #expect(hosts(&search, 0, at: 2_100).isEmpty)
    }

    @Test func `a server that closes each connection at once is asked a few times a second`() {
        var search = found(hosts: 1)
        for time in [UInt64(1_000), 2_000] {
            search.noteLoss(of: server(0, 1), at: at(time))
            #expect(hosts(&search, at: time).isEmpty && hosts(&search, at: time + 200) == [0])
            let again = search.take(server(0, 1), from: 0, begunAt: at(time + 200), at: at(time + 210))
            #expect(again == .used(isFailover: false))
        }
    }

    @Test func `a connection to the former primary that is lost late does not hold up the present one`() {
        var search = found(hosts: 2)
        _ = search.take(server(1, 2), from: 1, begunAt: at(1_000), at: at(1_100))
        search.noteLoss(of: server(0, 1), at: at(1_200))
        #expect(hosts(&search, at: 1_200).contains(1))
    }

    @Test func `another server is a failover, and its host is the one that is asked then`() {
        var search = found(hosts: 2)
        let began = at(1_000)
        let verdict = search.take(server(1, 2), from: 1, begunAt: began, at: at(1_100))
        #expect(verdict == .used(isFailover: true))
        #expect(search.primary == 1)
        let again = search.take(server(1, 2), from: 1, begunAt: began, at: at(1_200))
        #expect(again == .used(isFailover: false))
    }

    @Test(arguments: [Int64(0), 1, 3])
    func `an answer to what was asked before the present primary was found does not bring another one back`(
        timeline: Int64
    ) {
        var search = found(hosts: 2)
        #expect(
            search.take(server(1, 2), from: 1, begunAt: at(1_000), at: at(1_100))
                == .used(isFailover: true))
        #expect(
            search.take(server(0, timeline), from: 0, begunAt: at(1_099), at: at(5_000))
                == .outdated)
        #expect(search.primary == 1)
        // It takes writes, so it may be the primary.
        #expect(search.evidence == nil)
    }

    @Test func `a primary of an earlier timeline is used only if the later one is certainly none any more`() {
        func search() -> PrimarySearch {
            var search = found(hosts: 2)
            _ = search.take(server(1, 2), from: 1, begunAt: at(1_000), at: at(1_100))
            return search
        }
        func verdict(_ search: inout PrimarySearch, _ server: ServerIdentity) -> PrimarySearch.Verdict {
            search.take(server, from: 0, begunAt: at(3_000), at: at(3_100))
        }
        for refusal in [refused, .timedOut("has not answered")] {
            var cutOff = search()
            cutOff.take(refusal, from: 1, begunAt: at(2_000), at: at(2_900))
            #expect(verdict(&cutOff, server(0, 1)) == .outdated)
            #expect("\(cutOff.refusals[0]!)".contains("timeline 1"))
            #expect(verdict(&cutOff, server(0, 3)) == .used(isFailover: true))
        }
        var ended = search()
        ended.take(.isStandby, from: 1, begunAt: at(2_000), at: at(2_900))
        // Until it is proven, the later one may have acknowledged writes that it does not have.
        let unproven = ended.take(server(0, 1), from: 0, isProven: false, begunAt: at(3_000), at: at(3_050))
        #expect(unproven == .outdated)
        #expect(verdict(&ended, server(0, 1)) == .used(isFailover: true))
        // On the same host, a restored database may be of an earlier timeline.
        var restored = search()
        #expect(
            restored.take(server(1, 1), from: 1, begunAt: at(3_000), at: at(3_100))
                == .used(isFailover: true))
    }

    @Test func `reads count without commits as long as all other hosts are standbys`() throws {
        var search = found(hosts: 2)
        search.noteLoss(of: server(0, 1), at: at(2_000))
        search.take(.isStandby, from: 1, begunAt: at(2_000), at: at(2_010))
        search.take(.isUnproven, from: 0, begunAt: at(2_000), at: at(3_000))
        let evidence = try #require(search.evidence)
        #expect(evidence.server == server(0, 1) && evidence.since == at(2_000))
        #expect(hosts(&search, at: 3_010) == [1])
        search.take(.isStandby, from: 1, begunAt: at(3_010), at: at(3_020))
        let dials = search.dials(for: 1, replaceOnly: false, at: at(3_250))
        #expect(dials.map(\.trial) == [.none(evidence: at(3_010)), .asNeeded])
        // Evidence counts only for a short time, as a standby may have been promoted since.
        search.take(.isUnproven, from: 0, begunAt: at(3_250), at: at(3_260))
        let later = search.dials(for: 1, replaceOnly: false, at: at(3_800))
        #expect(later == [PrimarySearch.NextDial(host: 0, trial: .asNeeded)])
    }

    @Test func `a host that refuses connections may be a later primary that is restarted`() {
        var search = found(hosts: 3)
        search.noteLoss(of: server(0, 1), at: at(2_000))
        search.take(refused, from: 1, begunAt: at(2_000), at: at(2_010))
        search.take(.isStandby, from: 2, begunAt: at(2_000), at: at(2_010))
        search.take(.isUnproven, from: 0, begunAt: at(2_000), at: at(3_000))
        #expect(search.evidence == nil)
        let dials = search.dials(for: 1, replaceOnly: false, at: at(3_250))
        #expect(dials.map(\.trial) == [.asNeeded, .asNeeded, .asNeeded])
    }

    @Test func `a commit is tried where a connection is to be replaced on which one waits`() {
        var search = found(hosts: 1)
        search.noteOrder(isFirst: true, isReplacement: true, at: at(1_000))
        let dials = search.dials(for: 1, replaceOnly: true, at: at(1_000))
        #expect(dials == [PrimarySearch.NextDial(host: 0, trial: .always)])
    }

    @Test func `the reasons are given when all hosts were asked, and then each is asked once more`() {
        var search = PrimarySearch(hosts: 2)
        search.take(.isStandby, from: 0, begunAt: at(0), at: at(1))
        let early = search.takeReasons()
        search.take(refused, from: 1, begunAt: at(0), at: at(2))
        let (reasons, again) = (search.takeReasons(), search.takeReasons())
        #expect(early == nil && reasons?.count == 2 && again == nil)
    }
}
#endif
