import Metrics
import Testing
import TokenStore

@testable import Operations
@testable import Server

struct HistoryTests {
    private let figures: [HistoryFigure] = [.get, .getMedian, .memory]

    /// A reading at a time since the machine's start.
    private func reading(_ uptime: Double, get: UInt64 = 0, memory: Float = 7) -> HistoryReading {
        var reading = HistoryReading()
        (reading.uptime, reading.get, reading.memory) = (uptime, get, memory)
        return reading
    }

    private func values(_ history: History, _ resolution: History.Resolution = .second) -> [Float] {
        history.excerpt(resolution, from: 0).rows.values
    }

    private func positions(_ history: History, _ resolution: History.Resolution = .second) -> [UInt32] {
        history.excerpt(resolution, from: 0).rows.positions
    }

    @Test func `rates are since the reading before, and percentiles of nothing are none`() {
        let history = History(of: figures, from: reading(10.5, get: 100))
        history.add(reading(11.5, get: 130))
        history.add(reading(13.5, get: 130, memory: 8))
        let values = values(history)
        #expect(positions(history) == [11, 13])
        #expect((values[0], values[2], values[3], values[5]) == (30, 7, 0, 8))
        #expect(values[1].isNaN && values[4].isNaN)
    }

    @Test func `the share of GETs that found nothing is of those since the reading before`() {
        func reading(_ uptime: Double, get: UInt64, notFound: UInt64) -> HistoryReading {
            var reading = self.reading(uptime, get: get)
            reading.notFound = notFound
            return reading
        }
        let history = History(of: [.notFoundRatio], from: reading(1.5, get: 100, notFound: 90))
        history.add(reading(2.5, get: 140, notFound: 100))
        history.add(reading(3.5, get: 140, notFound: 100))
        // The loops are not read at the same instant.
        history.add(reading(4.5, get: 141, notFound: 102))
        let values = values(history)
        #expect(values[0] == 0.25 && values[1].isNaN && values[2] == 1)
    }

    @Test
    func
        `the time during which the process or the machine was stopped is a gap, and its requests count as spread over it`()
    {
        let history = History(of: [.get], from: reading(10.5))
        history.add(reading(11.5, get: 5))
        history.add(reading(3_611.5, get: 3_605))
        #expect(positions(history) == [11, 3_611] && values(history) == [5, 1])
        #expect(positions(history, .minute) == [3_600] && values(history, .minute) == [3_605 / Float(3_601)])
    }

    @Test func `a reading within the same second adds no row`() {
        let history = History(of: [.get], from: reading(10.2))
        for uptime in [10.9, 11.1, 11.9, 12] { history.add(reading(uptime, get: 9)) }
        #expect(positions(history) == [11, 12])
    }

    @Test func `a counter that seems to shrink, as the loops are not read at the same instant, makes no negative rate`()
    {
        let history = History(of: [.get], from: reading(1.5, get: 100))
        history.add(reading(2.5, get: 99))
        #expect(values(history) == [0])
    }

    @Test func `a day of seconds leaves an hour by the second and a day by the minute`() {
        let history = History(of: HistoryFigure.all(isRemote: false), from: reading(0.5))
        let size = history.largestSize
        for second in 1...90_000 { history.add(reading(Double(second) + 0.5, get: UInt64(second) * 2)) }
        var (since, all) = (UInt32(0), [UInt32]())
        while true {
            let rows = history.excerpt(.second, from: since).rows
            #expect(rows.positions.count <= History.excerptLimit)
            all += rows.positions
            guard rows.isCut, let last = rows.positions.last else { break }
            since = last + 1
        }
        #expect(all == Array(86_401...90_000))
        #expect(positions(history, .minute).first == 3_660)
        #expect(history.excerpt(.minute, from: 89_900).rows.positions == [89_940, 90_000])
        #expect(history.excerpt(.minute, from: 90_000).rows.values.first == 2)
        #expect(history.largestSize == size && size < 600_000)
    }

    @Test func `a minute has the mean rate of requests, and the peaks of errors and connections`() {
        func reading(_ uptime: Double, get: UInt64, errors: UInt64, connections: Float) -> HistoryReading {
            var reading = self.reading(uptime, get: get)
            (reading.errors, reading.connections) = (errors, connections)
            return reading
        }
        let history = History(
            of: [.get, .errors, .connections], from: reading(60.5, get: 0, errors: 0, connections: 1))
        history.add(reading(61.5, get: 600, errors: 300, connections: 18))
        for second in 62...180 { history.add(reading(Double(second) + 0.5, get: 600, errors: 300, connections: 1)) }
        #expect(positions(history, .minute) == [120, 180] && values(history, .minute) == [10, 300, 18, 0, 0, 1])
    }

    @Test func `percentiles of a minute are those of all its requests`() {
        let histogram = Histogram.latency()
        func now(_ uptime: Double) -> HistoryReading {
            var reading = HistoryReading()
            (reading.uptime, reading.getTime) = (uptime, histogram.reading)
            return reading
        }
        let history = History(of: [.getSlow], from: now(60.5))
        histogram.add(10_000, count: 98)
        for second in 61..<120 { history.add(now(Double(second) + 0.5)) }
        histogram.add(1_000_000_000, count: 2)
        history.add(now(120.5))
        #expect(values(history, .minute)[0] > 0.5 && positions(history, .minute) == [120])
    }

    // MARK: - Events

    @Test func `events have the position of the row in whose time they fell, and the oldest are dropped`() {
        let history = History(of: [.get], from: reading(0.5))
        for second in 1...150 {
            history.add(reading(Double(second) + 0.5), [HistoryEvent(.reload, "reload \(second)")])
        }
        let events = history.excerpt(.second, from: 0).events
        #expect(events.count == History.eventLimit)
        #expect(events.first == .init(number: 51, position: 51, event: HistoryEvent(.reload, "reload 51")))
        #expect(history.excerpt(.second, from: 149).events.map(\.number) == [149, 150])
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
        #expect(told.allSatisfy { $0.isFailure == ($0.kind == .fault || $0.text.hasSuffix("failed")) })
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
        #expect(refused.events(since: ServerSituation()).map(\.isFailure) == [true])
        later.reload = refused.reload
        later.reload.note("the certificate files have changed", "certificates reloaded", isRefused: false)
        #expect(later.events(since: refused).map(\.isFailure) == [false])
        #expect(!later.reload.isSuccessful && later.reload.settingsFault == "no setting changes")
    }

    @Test func `a server that is ready again has recovered`() {
        let events = ServerSituation().events(since: ServerSituation(reasons: ["full"]))
        #expect(events == [HistoryEvent(.recovery, "ready again")])
    }

    // MARK: - The answer

    @Test func `the answer has columns, and null for what there is not`() throws {
        let history = History(of: figures, from: reading(10.5))
        history.add(reading(12.0, get: 1), [HistoryEvent(.start, "a \"quoted\" text")])
        let query = try #require(HistoryAnswer.Query("resolution=second&since=12"))
        #expect(
            HistoryAnswer(history).text(query, uptime: 12.3456, time: 1_790_000_000.5)
                == #"{"now":{"position":12.346,"time":1790000000.5},"step":1,"rows":3600,"more":false,"positions":[12],"#
                + #""figures":{"get":[0.6667],"get_p50":[null],"memory":[7]},"#
                + #""events":[{"failed":false,"kind":"start","number":1,"position":12,"text":"a \"quoted\" text"}]}"#
                + "\n")
        let later = try #require(HistoryAnswer.Query("since=13"))
        #expect(
            HistoryAnswer(history).text(later, uptime: 12, time: 0).contains(#""positions":[],"figures":{"get":[]"#))
    }

    @Test(arguments: [
        "resolution=hour", "since=-1", "since=99999999999", "since", "since=", "nothing=1", "resolution=second&since=x",
    ])
    func `a query that is not understood is refused`(query: String) {
        #expect(HistoryAnswer.Query(query) == nil)
    }

    @Test(arguments: [0.0, 0.2, 0.5, 0.999, 12.75])
    func `a sample is taken in the middle of the next second`(uptime: Double) {
        let pause = HistorySampler.pause(at: uptime)
        let time = uptime + Double(pause.components.seconds) + Double(pause.components.attoseconds) / 1e18
        #expect(abs(time - (uptime.rounded(.down) + 1.5)) < 1e-6)
    }
}
