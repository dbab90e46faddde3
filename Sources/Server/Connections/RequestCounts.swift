package import HTTP
package import Metrics
package import TokenService

/// Counts requests by method and outcome.
///
/// A table, row by row, with a row for each method and a column for each of `outcomes`. Written on one thread, read on any.
package final class RequestCounts: Sendable {
    /// How a request was answered.
    package struct Outcome: Hashable, Sendable {
        fileprivate let status: Status
        /// `none` for every status but 200.
        fileprivate let code: ErrorCode

        package var kind: Response.Outcome { Response.Outcome(status, code) }

        /// The error code of the answer; 0 for none.
        package var errorCode: Int { Int(ErrorCode.number(of: status, code.rawValue)) }

        fileprivate var labels: (status: String, code: String) {
            ("\(status.rawValue)", errorCode == 0 ? "none" : "\(errorCode)")
        }
    }

    /// All GET requests, whatever their answers.
    let gets = Counter()
    private let counts = InlineArray<512, Counter> { _ in Counter() }

    /// The codes, which come with status 200, and then the other statuses.
    private static let outcomes: [Outcome] =
        codes.map { Outcome(status: .ok, code: $0) }
        + otherStatuses.map { Outcome(status: $0, code: .none) }
    private static let otherStatuses = Status.allCases.filter { $0 != .ok }
    private static let codes = ErrorCode.allCases
    private static let columns = codes.count + Status.allCases.count - 1

    init() {
        precondition(Method.allCases.count * Self.columns <= counts.count, "the table has room for each row and column")
    }

    /// Counts an answer; called on the one thread that writes.
    @inline(__always)
    func note(_ response: borrowing Response, to method: Method) {
        // Patterns, as `==` of another module's type is a call that is looked up at run time.
        let column =
            if case .ok = response.status { response.code == 0 ? 0 : Self.column(of: response.errorCode) } else {
                Self.column(of: response.status)
            }
        counts[method.rawValue * Self.columns + column].add()
        if case .get = method { gets.add() }
    }

    /// The column of an error code, which is its place in `codes`.
    @inline(never)
    private static func column(of code: ErrorCode) -> Int { codes.firstIndex(of: code) ?? 0 }

    /// The column of a status other than 200; rare enough for a search.
    @inline(never)
    private static func column(of status: Status) -> Int {
        guard let index = otherStatuses.firstIndex(of: status) else { preconditionFailure("each status has a column") }
        return codes.count + index
    }

    /// A number of requests with the same method and outcome.
    package typealias Row = (method: Method, outcome: Outcome, count: UInt64)

    /// The sums of several counts, also those that are 0.
    package static func rows(_ all: [RequestCounts]) -> [Row] {
        Method.allCases.flatMap { method in
            outcomes.enumerated().map { column, outcome in
                (method, outcome, all.reduce(0) { $0 + $1.counts[method.rawValue * columns + column].value })
            }
        }
    }

    /// Adds samples to the current family: those of GET and POST with status 200 also where they are 0, so that their first increase
    /// is seen.
    package static func write(_ rows: [Row], to text: inout MetricsText) {
        for (method, outcome, count) in rows
        where count > 0 || (outcome.status == .ok && [.get, .post].contains(method)) {
            let labels = outcome.labels
            text.add(["method": method.word, "status": labels.status, "code": labels.code], count)
        }
    }
}
