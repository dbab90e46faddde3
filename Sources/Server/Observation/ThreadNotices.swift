internal import Logging
internal import System

/// Decides what the log says about threads that have to wait: a line when the first one begins to wait, and one when none waits
/// any more.
struct ThreadNotices {
    struct Line: Equatable {
        let level: Logger.Level
        let text: String
    }

    /// While threads come and go so often that there is a shortage now and then, only one is reported in this time.
    static let quietTime = Duration.seconds(60)

    private var lastWarning: ContinuousClock.Instant?
    /// Whether the log says that threads wait.
    private var isReported = false

    /// The line for an attempt to start what waits; nil if there is nothing new.
    mutating func line(for attempt: NamedThread.Attempt, at now: ContinuousClock.Instant) -> Line? {
        if let shortage = attempt.shortage {
            guard !isReported, lastWarning.map({ now - $0 >= Self.quietTime }) ?? true else { return nil }
            (isReported, lastWarning) = (true, now)
            let names = Self.list(attempt.newcomers)
            return Line(level: .warning, text: "\(names) cannot start yet, and will as soon as possible: \(shortage)")
        }
        guard isReported else { return nil }
        isReported = false
        return Line(
            level: .notice, text: "all threads that had to wait have started, at last \(Self.list(attempt.started))")
    }

    /// The names, each once.
    private static func list(_ names: [String]) -> String {
        var seen: Set<String> = []
        let names = names.filter { seen.insert($0).inserted }
        return "the \(names.count == 1 ? "thread" : "threads") \(names.joined(separator: ", "))"
    }
}
