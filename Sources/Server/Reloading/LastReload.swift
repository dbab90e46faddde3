/// How the last reload of settings and certificates ended; the start counts as the first one.
package struct LastReload: Sendable, Equatable {
    /// Why the settings were not applied when they were last read; nil if they were.
    package private(set) var settingsFault: String?
    /// Why the certificate files cannot be used, as of their last reading; nil if they are used.
    package private(set) var certificateFault: String?
    /// When settings and certificates were last found right, in seconds since 1970.
    package private(set) var successTime: Int64
    /// How many reloads have ended since the start.
    package private(set) var number: UInt64 = 0
    /// What caused the last one, such as `SIGHUP received`; empty before the first, as is the outcome.
    package private(set) var reason = ""
    /// As in `ReloadOutcome`.
    package private(set) var outcome = ""
    /// Whether the last one was refused; unlike `isSuccessful`, whatever those before it have left undone.
    package private(set) var wasRefused = false

    package init(successTime: Int64) {
        self.successTime = successTime
    }

    /// Whether a restart would start with what is in force now.
    package var isSuccessful: Bool { settingsFault == nil && certificateFault == nil }

    /// Notes that settings and certificates were read and applied.
    mutating func noteSuccess(at unixTime: Int64) {
        (settingsFault, certificateFault, successTime) = (nil, nil, unixTime)
    }

    /// Notes that settings were read and not applied, and why.
    package mutating func noteRefusal(_ fault: String) {
        settingsFault = fault
    }

    /// Notes that the certificates alone were read.
    ///
    /// - Parameters:
    ///   - fault: Why they cannot be used; nil if they are used now.
    ///   - unixTime: The present time.
    mutating func noteCertificates(fault: String?, at unixTime: Int64) {
        certificateFault = fault
        if isSuccessful { successTime = unixTime }
    }

    /// Notes that a reload has ended.
    package mutating func note(_ reason: String, _ outcome: String, isRefused: Bool) {
        number += 1
        (self.reason, self.outcome, wasRefused) = (reason, outcome, isRefused)
    }
}
