/// Which of a folder's backups are kept: the last ones, and the last one of each of the last hours, days and weeks that have one.
///
/// Hours, days and weeks are those of UTC; weeks begin on Monday.
package struct BackupRetention: Hashable, Sendable {
    /// How many of the last backups are kept, and how many of the last hours, days and weeks keep one.
    private var counts: [Period: Int] = [:]

    enum Period: String, CaseIterable {
        case last, hourly, daily, weekly

        /// The number of the period in which a time lies.
        func number(of time: Int64) -> Int64 {
            switch self {
            case .last: time
            case .hourly: Self.floor(time, 3_600)
            case .daily: Self.floor(time, 86_400)
            // 1970 began on a Thursday.
            case .weekly: Self.floor(Self.floor(time, 86_400) + 3, 7)
            }
        }

        private static func floor(_ number: Int64, _ divisor: Int64) -> Int64 {
            number / divisor - (number % divisor < 0 ? 1 : 0)
        }
    }

    /// A larger number is taken for a typing error.
    private static let limit = 100_000

    /// Reads a rule such as `hourly=24,daily=7,weekly=4`.
    package init(_ text: String) throws(CommandFailure) {
        for part in text.split(separator: ",", omittingEmptySubsequences: false) {
            let sides = part.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard sides.count == 2, let period = Period(rawValue: String(sides[0])), let count = Int(sides[1]),
                (1...Self.limit).contains(count)
            else {
                throw CommandFailure(
                    """
                    "\(part)" is not one of last=N, hourly=N, daily=N and weekly=N with N from 1 to \(Self.limit); \
                    write for example hourly=24,daily=7,weekly=4
                    """
                )
            }
            guard counts.updateValue(count, forKey: period) == nil else {
                throw CommandFailure("\(period.rawValue) is there twice")
            }
        }
    }

    /// The times of the backups that the rule does not keep.
    ///
    /// - Parameters:
    ///   - times: When the backups were made, in seconds since 1970.
    ///   - newest: The one that was just made, which is kept whatever the clock says. Those of a later time, made while the clock was
    ///     wrong, are kept as well, and take no earlier one's place.
    package func superfluous(of times: [Int64], newest: Int64) -> Set<Int64> {
        let past = times.filter { $0 <= newest }.sorted(by: >)
        var kept: Set<Int64> = [newest]
        for (period, count) in counts {
            var numbers: Set<Int64> = []
            for time in past where numbers.count < count {
                if numbers.insert(period.number(of: time)).inserted { kept.insert(time) }
            }
        }
        return Set(past).subtracting(kept)
    }
}
