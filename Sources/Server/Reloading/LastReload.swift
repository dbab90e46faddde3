/// How the last reload of settings and certificates ended; the start counts as the first one.
package struct LastReload: Sendable, Equatable {
    package var isSuccessful = true
    /// When settings were last read and applied, in seconds since 1970.
    package var successTime: Int64
    /// How many reloads have ended since the start.
    package private(set) var number: UInt64 = 0
    /// What caused the last one, such as `SIGHUP received`; empty before the first, as is the outcome.
    package private(set) var reason = ""
    /// As in `ReloadOutcome`.
    package private(set) var outcome = ""

    package init(isSuccessful: Bool = true, successTime: Int64) {
        self.isSuccessful = isSuccessful
        self.successTime = successTime
    }

    /// Notes that a reload has ended.
    package mutating func note(_ reason: String, _ outcome: ReloadOutcome) {
        number += 1
        (self.reason, self.outcome) = (reason, outcome.outcome)
    }
}
