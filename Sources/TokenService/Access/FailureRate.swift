/// How many failures an address may have in which time, such as 30 per minute.
///
/// So many may come at once; after that one more is within the rate whenever `interval` has passed.
package struct FailureRate: Hashable, Sendable, CustomStringConvertible {
    package enum Period: String, Sendable, CaseIterable {
        case second = "s"
        case minute = "min"
        case hour = "h"

        var duration: Duration {
            switch self {
            case .second: .seconds(1)
            case .minute: .seconds(60)
            case .hour: .seconds(3_600)
            }
        }
    }

    /// At least 1.
    package let count: Int
    package let period: Period

    /// The rate that is used if no other is set.
    package static let standard = FailureRate(count: 30, per: .minute)

    /// The largest number; so many failures in a second are no guesses that a limit could slow down.
    private static let largestCount = 1_000_000

    private init(count: Int, per period: Period) {
        self.count = count
        self.period = period
    }

    /// Reads a rate, such as `30/min`, `1/s` or `100/h`; nil if the text is none.
    package init?(_ text: String) {
        let parts = text.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 2, parts[0].allSatisfy({ $0.isASCII && $0.isNumber }), let count = Int(parts[0]),
            (1...Self.largestCount).contains(count), let period = Period(rawValue: String(parts[1]))
        else { return nil }
        self.init(count: count, per: period)
    }

    /// The time after which one more failure is within the rate.
    package var interval: Duration { period.duration / count }

    package var description: String { "\(count)/\(period.rawValue)" }
}
