internal import HTTP
package import Metrics

/// Requests by method and answer.
///
/// Written on one thread, read on any.
package final class RequestCounts: Sendable {
    /// How a request was answered.
    package struct Outcome: Sendable {
        /// Nil for an answer that has no column of its own.
        let status: Status?
        /// 0 for none.
        let code: UInt16

        /// That nothing is stored under an id is none; an answer that nobody has thought of here is one.
        package var isError: Bool {
            guard let status else { return true }
            return status == .ok ? code != 0 && code != 50002 : status.rawValue >= 400
        }

        fileprivate var labels: (status: String, code: String) {
            guard let status else { return ("other", "other") }
            return ("\(status.rawValue)", code == 0 ? "none" : "\(code)")
        }
    }

    /// Of all GET together.
    let gets = Counter()
    /// A row for each method, with a column for each outcome.
    private let counts = InlineArray<160, Counter> { _ in Counter() }

    /// Those of the contract, which come with status 200, the other statuses with the code that each stands for, and last all
    /// that is none of these.
    package static let outcomes: [Outcome] =
        [0, 30001, 50001, 50002, 50003].map { Outcome(status: .ok, code: $0) }
        + others.map { Outcome(status: $0, code: $0.rawValue < 400 ? 0 : $0.rawValue * 100) }
        + [Outcome(status: nil, code: 0)]
    private static let others = Status.allCases.filter { $0 != .ok }
    /// In the order of `row(of:)`; the last row is for all other methods.
    private static let methods: [Method] = [.get, .post, .head, .options, .connect, .other]

    init() {
        precondition(Self.methods.count * Self.outcomes.count <= counts.count, "each has its place")
    }

    /// Counts an answer, on the thread that this belongs to.
    @inline(__always)
    func note(_ response: borrowing Response, to method: Method) {
        // Patterns, for `==` of another module's type is a call that is looked up at run time.
        let outcome =
            if case .ok = response.status { Self.column(of: response.code) } else { Self.column(of: response.status) }
        counts[Self.row(of: method) * Self.outcomeCount + outcome].add()
        if case .get = method { gets.add() }
    }

    private static let outcomeCount = 5 + Status.allCases.count

    @inline(__always)
    private static func row(of method: Method) -> Int {
        switch method {
        case .get: 0
        case .post: 1
        case .head: 2
        case .options: 3
        case .connect: 4
        case .put, .patch, .delete, .trace, .other: 5
        }
    }

    @inline(__always)
    private static func column(of code: UInt16) -> Int {
        switch code {
        case 0: 0
        case 30001: 1
        case 50001: 2
        case 50002: 3
        case 50003: 4
        // A success is only what is known to be one.
        default: outcomeCount - 1
        }
    }

    /// Of a status other than 200, where there is time to look.
    @inline(never)
    private static func column(of status: Status) -> Int {
        others.firstIndex(of: status).map { 5 + $0 } ?? outcomeCount - 1
    }

    /// Adds what was counted to a table of all methods and outcomes.
    package func add(to table: inout [UInt64]) {
        for index in table.indices { table[index] += counts[index].value }
    }

    /// An empty table.
    package static var table: [UInt64] { Array(repeating: 0, count: methods.count * outcomes.count) }

    /// Writes the samples of a table: those of the contract also where they are 0, so that their first increase is seen.
    package static func write(_ table: [UInt64], _ name: String, to text: inout MetricsText) {
        for (row, method) in methods.enumerated() {
            for (column, outcome) in outcomes.enumerated() {
                let count = table[row * outcomes.count + column]
                guard count > 0 || (row < 2 && outcome.status == .ok) else { continue }
                let labels = outcome.labels
                text.add(
                    name,
                    ["method": method.name.map { "\($0)" } ?? "other", "status": labels.status, "code": labels.code],
                    count)
            }
        }
    }
}
