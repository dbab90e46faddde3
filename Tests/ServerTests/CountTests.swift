import HTTP
import Metrics
import Testing
import TokenService

@testable import Server

@Suite struct RequestCountsTests {
    private func samples(_ responses: [Response], to method: Method = .get) -> (text: String, errors: UInt64) {
        let counts = RequestCounts()
        for response in responses { counts.note(response, to: method) }
        let rows = RequestCounts.rows([counts])
        var text = MetricsText()
        text.begin("r_total", "Requests.")
        RequestCounts.write(rows, to: &text)
        let errors = rows.filter { [.refused, .failed].contains($0.outcome.kind) }
        return (text.text, errors.reduce(0) { $0 + $1.count })
    }

    @Test("each error code has a count of its own, and is an error or not", arguments: ErrorCode.allCases)
    func codes(code: ErrorCode) {
        let (text, errors) = samples([Response(body: [], code: code.rawValue)])
        let label = code == .none ? "none" : "\(code.rawValue)"
        #expect(text.contains("r_total{method=\"GET\",status=\"200\",code=\"\(label)\"} 1\n"))
        #expect(errors == ([.none, .notFound].contains(code) ? 0 : 1))
    }

    @Test("each method has a count of its own", arguments: Method.allCases)
    func methods(method: Method) {
        let label = method.name.map { "\($0)" } ?? "other"
        let lines = samples([Response(body: [])], to: method).text.split(separator: "\n").filter { $0.hasSuffix(" 1") }
        #expect(lines == ["r_total{method=\"\(label)\",status=\"200\",code=\"none\"} 1"])
    }

    @Test("each status has a count of its own", arguments: Status.allCases)
    func statuses(status: Status) {
        let (text, errors) = samples([Response(status: status, body: [])])
        let code = status.rawValue < 400 ? "none" : "\(status.rawValue * 100)"
        #expect(text.contains("r_total{method=\"GET\",status=\"\(status.rawValue)\",code=\"\(code)\"} 1\n"))
        #expect(errors == (status.rawValue < 400 ? 0 : 1))
    }
}

@Suite struct ConnectionCountTests {
    @Test func `connections that get 503 take the place of none that could be served`() {
        let count = ConnectionCount(limit: 2)
        #expect([count.add(), count.add(), count.add()] == [true, true, false])
        #expect(!count.admit())
        // One that is served ends while the refused one is still open.
        count.subtract()
        #expect(count.add() == true)
        count.subtract()
        #expect(count.admit())
        #expect(count.add() == false)
        count.subtract(isRefused: true)
        #expect(count.add() == false)
    }

    @Test func `of many that get 503, further ones are not even counted`() {
        let count = ConnectionCount(limit: 0)
        var refused = 0
        while count.add() != nil { refused += 1 }
        #expect(refused == 1_000)
        count.subtract(isRefused: true)
        #expect(count.add() == false)
    }
}
