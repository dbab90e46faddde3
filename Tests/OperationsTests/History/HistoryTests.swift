import HTTP
import Metrics
import Testing
import TokenService
import TokenStore

@testable import Operations
@testable import Server

struct HistoryTests {
    private let accepted = HistoryFigure.rate("accepted") { Double($0.accepted) }
    private let refused = HistoryFigure.rate("refused", isPeak: true) { Double($0.refused.answered) }
    private let memory = HistoryFigure.state("memory", isPeak: true) { Double($0.bufferBytes) }
    private let time = HistoryFigure.time("time", 0.99) { $0.getTime }

    /// A reading at a time since the machine's start.
    private func reading(
        _ uptime: Double, accepted: UInt64 = 0, refused: UInt64 = 0, memory: Int = 7
    ) -> ServerFigures {
        var reading = ServerFigures()
        (reading.uptime, reading.accepted, reading.bufferBytes) = (uptime, accepted, memory)
        reading.refused.answered = refused
        return reading
    }

    private func values(_ history: History) -> [Float] { history.excerpt(from: 0).rows.flatMap(\.values) }

    private func positions(_ history: History) -> [UInt32] { history.excerpt(from: 0).rows.map(\.position) }

    @Test func `rates are since the row before, percentiles of nothing are none, and the last row may be of less`() {
        let history = History(of: [accepted, time, memory], from: reading(8.5, accepted: 100))
        #expect(positions(history) == [])
        history.add(reading(9.5, accepted: 130))
        #expect(positions(history) == [9] && values(history)[0] == 30)
        history.add(reading(10.5, accepted: 130))
        history.add(reading(11.5, accepted: 140, memory: 8))
        history.add(reading(12.5, accepted: 150, memory: 6))
        let values = values(history)
        #expect(positions(history) == [10, 12])
        #expect((values[0], values[2], values[3], values[5]) == (15, 7, 10, 8))
        #expect(values[1].isNaN && values[4].isNaN)
        #expect(history.excerpt(from: 11).rows.map(\.position) == [12])
    }

    @Test func `a share is of those since the row before, and at most all`() {
        let share = HistoryFigure.share("share", { Double($0.refused.answered) }, of: { Double($0.accepted) })
        let history = History(of: [share], from: reading(0.5, accepted: 100, refused: 90))
        history.add(reading(10.5, accepted: 140, refused: 100))
        history.add(reading(20.5, accepted: 140, refused: 100))
        // The loops are not read at the same instant.
        history.add(reading(30.5, accepted: 141, refused: 102))
        let values = values(history)
        #expect(values[0] == 0.25 && values[1].isNaN && values[2] == 1)
    }

    @Test func `each figure is what was counted and what there is`() {
        let counts = RequestCounts()
        for method in [Method.get, .get, .post, .put] { counts.note(Response(body: []), to: method) }
        counts.note(Response(body: [], code: ErrorCode.notFound.rawValue), to: .get)
        counts.note(Response(body: [], code: ErrorCode.writeFailed.rawValue), to: .post)
        counts.note(Response(status: .notFound, body: []), to: .post)
        var now = reading(1)
        now.requests = RequestCounts.rows([counts])
        now.denied = [("missing", 2), ("unknown", 3)]
        now.refused = (4, 5)
        (now.answers.hits, now.answers.misses, now.answers.bytes) = (3, 1, 70)
        (now.store.tokens, now.store.sessions, now.store.databaseBytes, now.store.walBytes) = (20, 30, 4_000, 96)
        now.openConnections = 6
        let values = HistoryFigure.all.map { ($0.name, $0.value(now, reading(0))) }
        let measured = Dictionary(uniqueKeysWithValues: values.filter { !$1.isNaN })
        #expect(
            measured == [
                "get": 3, "post": 3, "other": 1, "errors": 2, "failures": 1, "denied": 5, "refused": 9, "retries": 0,
                "hit_ratio": 0.75, "not_found_ratio": 1.0 / 3, "processor": 0, "connections": 6, "memory": 0,
                "cache_bytes": 70, "buffer_bytes": 7, "tokens": 20, "sessions": 30, "store_bytes": 4_096,
            ])
    }

    @Test
    func
        `the time during which the process or the machine was stopped is a gap, and its requests count as spread over it`()
    {
        let history = History(of: [accepted], from: reading(0.5))
        history.add(reading(10.5, accepted: 50))
        history.add(reading(3_610.5, accepted: 3_650))
        #expect(positions(history) == [10, 3_610] && values(history) == [5, 1])
    }

    @Test func `a reading within the same second adds nothing`() {
        let history = History(of: [accepted], from: reading(10.2))
        history.add(reading(10.9, accepted: 9))
        #expect(positions(history) == [])
        for uptime in [11.2, 11.9] { history.add(reading(uptime, accepted: 9)) }
        #expect(positions(history) == [11] && values(history) == [9])
    }

    @Test func `a counter that seems to shrink, as the loops are not read at the same instant, makes no negative rate`()
    {
        let history = History(of: [accepted], from: reading(1.5, accepted: 100))
        history.add(reading(2.5, accepted: 99))
        #expect(values(history) == [0])
    }

    @Test func `a day of seconds leaves an hour by ten seconds`() {
        let history = History(of: [accepted], from: reading(0.5))
        for second in 1...86_400 { history.add(reading(Double(second) + 0.5, accepted: UInt64(second) * 2)) }
        #expect(positions(history) == Array(stride(from: 82_810, through: 86_400, by: 10)))
        #expect(history.excerpt(from: 86_391).rows.map { $0.values[0] } == [2])
    }

    @Test func `ten seconds have the mean rate of requests, and the peaks of what may be short`() {
        let history = History(of: [accepted, refused, memory], from: reading(60.5))
        history.add(reading(61.5, accepted: 600, refused: 300, memory: 18))
        for second in 62...80 { history.add(reading(Double(second) + 0.5, accepted: 600, refused: 300, memory: 1)) }
        #expect(positions(history) == [70, 80] && values(history) == [60, 300, 18, 0, 0, 1])
    }

    @Test func `percentiles of ten seconds are those of all their requests`() {
        let histogram = Histogram.latency()
        func now(_ uptime: Double) -> ServerFigures {
            var reading = reading(uptime)
            reading.getTime = histogram.reading
            return reading
        }
        let history = History(of: [time], from: now(60.5))
        histogram.add(10_000, count: 98)
        for second in 61..<70 { history.add(now(Double(second) + 0.5)) }
        histogram.add(1_000_000_000, count: 2)
        history.add(now(70.5))
        #expect(values(history)[0] > 0.5 && positions(history) == [70])
    }

    // MARK: - Events

    @Test func `events have the position of the row in whose time they fell, and the oldest are dropped`() {
        let history = History(of: [accepted], from: reading(0.5))
        for second in 1...150 {
            history.add(reading(Double(second) + 0.5), [HistoryEvent(.reload, "reload \(second)")])
        }
        let events = history.excerpt(from: 0).events
        #expect(events.count == History.eventLimit)
        #expect(events.first.map { [$0.text, "\($0.number)", "\($0.position)"] } == ["reload 51", "51", "51"])
        #expect(history.excerpt(from: 149).events.map(\.number) == [149, 150])
    }

    @Test func `a long text of an event is cut`() {
        #expect(HistoryEvent(.fault, String(repeating: "a", count: 10_000)).text.count == HistoryEvent.textLimit)
    }

    @Test(
        arguments: [
            (ServerSituation(), []),
            (ServerSituation(reasons: ["full"]), ["fault: not ready: full"]),
            (ServerSituation(reasons: ["stopping"], isStopping: true), ["drain: the server is stopping"]),
            (ServerSituation(failovers: 1, primary: "db2:5432"), ["failover: the primary is db2:5432"]),
            (
                ServerSituation(backup: BackupRecord(isSuccessful: false, endTime: 7, successTime: nil)),
                ["backup: a backup has failed"]
            ),
            (
                ServerSituation(backup: BackupRecord(isSuccessful: true, endTime: 7, successTime: 7)),
                ["backup: a backup has succeeded"]
            ),
        ] as [(ServerSituation, [String])])
    func `what changes between two situations is an event, and only once`(situation: ServerSituation, events: [String])
    {
        #expect(situation.events(since: ServerSituation()).map { "\($0.kind.rawValue): \($0.text)" } == events)
        let told = situation.events(since: ServerSituation())
        #expect(told.allSatisfy { $0.failed == ($0.kind == .fault || $0.text.hasSuffix("failed")) })
        #expect(situation.events(since: situation) == [])
    }

    @Test func `a reload is an event with its reason and its outcome`() {
        var situation = ServerSituation()
        situation.reload.note("SIGHUP received", "no setting has changed", isRefused: false)
        let text = "SIGHUP received: no setting has changed"
        #expect(situation.events(since: ServerSituation()) == [HistoryEvent(.reload, text)])
        #expect(situation.events(since: situation) == [])
    }

    @Test func `a refused reload is a failure, and one of the certificates after it is none`() {
        var (refused, later) = (ServerSituation(), ServerSituation())
        refused.reload.noteRefusal("no setting changes")
        refused.reload.note("SIGHUP received", "no setting changes", isRefused: true)
        #expect(refused.events(since: ServerSituation()).map(\.failed) == [true])
        later.reload = refused.reload
        later.reload.note("the certificate files have changed", "certificates reloaded", isRefused: false)
        #expect(later.events(since: refused).map(\.failed) == [false])
        #expect(!later.reload.isSuccessful && later.reload.settingsFault == "no setting changes")
    }

    @Test func `a server that is ready again has recovered`() {
        let events = ServerSituation().events(since: ServerSituation(reasons: ["full"]))
        #expect(events == [HistoryEvent(.recovery, "ready again")])
    }

    // MARK: - The answer

    @Test func `the answer has columns, and null for what there is not`() throws {
        let history = History(of: [accepted, time, memory], from: reading(10.5))
        history.add(reading(12.0, accepted: 1), [HistoryEvent(.start, "a \"quoted\" text")])
        func text(from first: UInt32) throws -> String {
            let answer = history.answer(from: first, at: 12.25, 1_790_000_000.5)
            return String(decoding: try OperationsJSON.encode(answer), as: UTF8.self)
        }
        let now = #""now":{"position":12.25,"time":1790000000.5}"#
        #expect(
            try text(from: 12)
                == #"{"events":[{"failed":false,"kind":"start","number":1,"position":12,"text":"a \"quoted\" text"}],"#
                + #""figures":{"accepted":[0.6667],"memory":[7],"time":[null]},"# + now + #","positions":[12]}"#)
        #expect(
            try text(from: 13) == #"{"events":[],"figures":{"accepted":[],"memory":[],"time":[]},"# + now
                + #","positions":[]}"#)
    }

    @Test(arguments: [
        "resolution=minute", "since=-1", "since=99999999999", "since", "since=", "since=1&since=2", "since=x",
    ])
    func `a query that is not understood is refused`(query: String) {
        #expect(History.first(query) == nil)
    }

    @Test(arguments: [0.0, 0.2, 0.5, 0.999, 12.75])
    func `a sample is taken in the middle of the next second`(uptime: Double) {
        let pause = History.pause(at: uptime)
        let time = uptime + Double(pause.components.seconds) + Double(pause.components.attoseconds) / 1e18
        #expect(abs(time - (uptime.rounded(.down) + 1.5)) < 1e-6)
    }
}
