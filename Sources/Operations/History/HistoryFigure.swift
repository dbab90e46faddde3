import HTTP
import Metrics
import Server
import System
import TokenService
import TokenStore

/// A figure whose course over time is kept.
struct HistoryFigure: Sendable {
    /// In the answer of `/history`.
    let name: String
    /// Whether the value of ten seconds is the largest of its seconds, because a short peak matters.
    ///
    /// Otherwise it is that of the ten seconds as a whole or, for a state, that at their end.
    let isPeak: Bool
    /// The figure of the time between two readings; NaN if there is none, such as a percentile without requests.
    let value: @Sendable (_ now: ServerFigures, _ earlier: ServerFigures) -> Float

    static let all = rates + times + shares + states

    private static let rates = [
        rate("get") { $0.gets },
        rate("post") { $0.requests { $0.method == .post } },
        rate("other") { $0.requests { $0.method != .get && $0.method != .post } },
        // Answers with status 400 or higher, or with an error code other than 50002.
        rate("errors") { $0.requests { [.refused, .failed].contains($0.outcome.kind) } },
        // Answers with 50001 or a status from 500 on.
        rate("failures") { $0.requests { $0.outcome.kind == .failed } },
        // Requests that were not served for want of a valid credential.
        rate("denied") { Double($0.denied.reduce(0) { $0 + $1.count }) },
        // Connections beyond the limit.
        rate("refused", isPeak: true) { Double($0.refused.answered + $0.refused.closed) },
        // Requests that were sent to a database again.
        rate("retries", isPeak: true) { Double($0.store.remote?.retryCount ?? 0) },
    ]

    /// In seconds.
    private static let times = [
        time("get_p50", 0.5) { $0.getTime }, time("get_p99", 0.99) { $0.getTime },
        time("post_p50", 0.5) { $0.postTime }, time("post_p99", 0.99) { $0.postTime },
        time("commit_p50", 0.5) { $0.store.commitTime }, time("commit_p99", 0.99) { $0.store.commitTime },
        time("sync_p99", 0.99) { $0.store.syncTime },
        time("read_p50", 0.5) { $0.store.remote?.readTime }, time("read_p99", 0.99) { $0.store.remote?.readTime },
    ]

    private static let shares = [
        share("hit_ratio", { Double($0.answers.hits) }, of: { Double($0.answers.hits + $0.answers.misses) }),
        // The GETs that were answered with 50002: no token is stored under the id.
        share(
            "not_found_ratio", { $0.requests { $0.method == .get && $0.outcome.kind == .notFound } }, of: { $0.gets }),
        // Of one core.
        rate("processor") { $0.process.processorSeconds },
    ]

    private static let states = [
        state("connections", isPeak: true) { Double($0.openConnections) },
        // Resident bytes of the process.
        state("memory", isPeak: true) { $0.process.residentBytes },
        state("cache_bytes", isPeak: true) { Double($0.answers.bytes) },
        // Bytes of `limits.buffers` in use.
        state("buffer_bytes", isPeak: true) { Double(max(0, $0.bufferBytes)) },
        state("tokens") { $0.store.tokens.map { Double($0) } },
        state("sessions") { $0.store.sessions.map { Double($0) } },
        // Bytes of the database and its WAL.
        state("store_bytes") { figures in
            figures.store.databaseBytes.map { Double($0 + (figures.store.walBytes ?? 0)) }
        },
        // Bytes that may still be written to the data folder's file system.
        state("disk_free") { $0.disk.map { Double($0.freeBytes) } },
        // Requests that wait for a database.
        state("waiting", isPeak: true) { $0.store.remote.map { Double($0.waitingRequests) } },
    ]
}

extension HistoryFigure {
    /// A number at the time of a reading.
    typealias Number = @Sendable (ServerFigures) -> Double

    /// By how much a counter grows in a second.
    static func rate(_ name: String, isPeak: Bool = false, _ counter: @escaping Number) -> HistoryFigure {
        HistoryFigure(name: name, isPeak: isPeak) { quotient(of: counter, by: { $0.uptime }, $0, $1) }
    }

    /// The part of what one counter has counted that another one has.
    static func share(_ name: String, _ part: @escaping Number, of whole: @escaping Number) -> HistoryFigure {
        HistoryFigure(name: name, isPeak: false) {
            let share = quotient(of: part, by: whole, $0, $1)
            return share > 1 ? 1 : share
        }
    }

    /// The time that a share of the requests took at most.
    static func time(
        _ name: String, _ share: Double, _ histogram: @escaping @Sendable (ServerFigures) -> Histogram.Reading?
    ) -> HistoryFigure {
        HistoryFigure(name: name, isPeak: false) { now, earlier in
            guard let reading = histogram(now), let before = histogram(earlier) else { return .nan }
            return reading.quantile(share, since: before).map { Float($0) } ?? .nan
        }
    }

    /// - Parameter gauge: Returns nil if the store does not have the figure.
    static func state(
        _ name: String, isPeak: Bool = false, _ gauge: @escaping @Sendable (ServerFigures) -> Double?
    ) -> HistoryFigure {
        HistoryFigure(name: name, isPeak: isPeak) { now, _ in Float(gauge(now) ?? .nan) }
    }

    /// The loops' counters are not read at the same instant, so that a sum may seem to have shrunk, and a part to be more than all.
    private static func quotient(
        of counter: Number, by other: Number, _ now: ServerFigures, _ earlier: ServerFigures
    ) -> Float {
        let growth = other(now) - other(earlier)
        return growth > 0 ? Float(max(0, counter(now) - counter(earlier)) / growth) : .nan
    }
}
