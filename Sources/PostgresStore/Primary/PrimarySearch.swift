#if PostgreSQL
import System

/// Decides which host is asked when for a connection to the primary, and which answer counts.
///
/// The last primary is asked first, and all hosts if it does not answer soon. This value has no clock, thread or connection: the
/// caller tells it what happens, and when.
struct PrimarySearch: Sendable {
    /// A dial to begin.
    struct NextDial: Equatable {
        let host: Int
        let trial: Dial.Trial
    }

    /// What to do with a new connection.
    enum Verdict: Equatable {
        /// Use it; `isFailover` if another server was the primary before.
        case used(isFailover: Bool)
        /// Close it: its server is, or may be, a former primary.
        case outdated
    }

    /// By host: when the dials under way began, and when the next one may begin.
    private var dialing: [[MonotonicTime]]
    private var notBefore: [MonotonicTime]
    /// By host: why it was not used at the last attempt; nil if it was used, or has not been asked since `takeReasons`.
    private(set) var refusals: [PostgresError?]
    /// By host: when the last attempt began, if it has shown that the host is a standby.
    private var notPrimaryAt: [MonotonicTime?]
    private(set) var primary: Int?
    /// The server that was the primary last; since then its host may have become another server.
    private(set) var server: ServerIdentity?
    /// When `server` was found to be the primary.
    private var foundAt = MonotonicTime(nanoseconds: 0)
    /// From when on the other hosts are asked as well.
    private var othersFrom = MonotonicTime(nanoseconds: 0)

    /// How long the last primary is asked alone.
    static let headStart = Nanoseconds(.milliseconds(300))
    private static let dialsAtOnce = 8
    /// How long to wait for one dial before another one to the same host begins.
    private static let patience = Nanoseconds(.seconds(1))
    /// How many milliseconds to wait after a failure before a host is asked again.
    private static let pause: ClosedRange<Int64> = 100...200

    init(hosts count: Int) {
        dialing = Array(repeating: [], count: count)
        notBefore = Array(repeating: MonotonicTime(nanoseconds: 0), count: count)
        refusals = Array(repeating: nil, count: count)
        notPrimaryAt = Array(repeating: nil, count: count)
    }

    // MARK: - What happens

    /// A connection was ordered.
    ///
    /// - Parameters:
    ///   - isFirst: Whether no other order is open.
    ///   - isReplacement: Whether it is to replace a connection that does not answer.
    mutating func noteOrder(isFirst: Bool, isReplacement: Bool, at now: MonotonicTime) {
        if isFirst { othersFrom = now + Self.headStart }
        if isReplacement { othersFrom = now }
    }

    /// A connection was lost.
    ///
    /// - Parameter lost: Its server; it need not be the present primary.
    mutating func noteLoss(of lost: ServerIdentity, at now: MonotonicTime) {
        // Other connections to it may still work, but all hosts are asked from now on.
        othersFrom = now
        // The server may be one that accepts connections and closes them at the first statement.
        if let primary, lost == server { pause(primary, from: now) }
    }

    private mutating func pause(_ host: Int, from now: MonotonicTime) {
        notBefore[host] = now + .milliseconds(Int64.random(in: Self.pause))
    }

    private mutating func endDial(to host: Int, begunAt began: MonotonicTime) {
        dialing[host].firstIndex(of: began).map { _ = dialing[host].remove(at: $0) }
    }

    /// A dial has succeeded.
    ///
    /// - Parameters:
    ///   - found: The server that it has reached.
    ///   - host: The index of its host.
    ///   - isProven: Whether its commits return, if they have to prove that it is the primary.
    ///   - began: When the dial began.
    mutating func take(
        _ found: ServerIdentity, from host: Int, isProven: Bool = true, begunAt began: MonotonicTime,
        at now: MonotonicTime
    ) -> Verdict {
        endDial(to: host, begunAt: began)
        (refusals[host], notPrimaryAt[host]) = (nil, nil)
        guard let last = server, last != found else {
            primary = host
            if server == nil { (server, foundAt) = (found, now) }
            return .used(isFailover: false)
        }
        guard began >= foundAt else {
            // This dial began before the present primary was found, so the server may be a former one. Another dial will tell.
            notBefore[host] = now
            return .outdated
        }
        if isFormer(found, at: host, than: last, isProven) {
            let text = """
                it answers as a primary of timeline \(found.timeline), and \(last.address) is the one of timeline \
                \(last.timeline), which is later and cannot be reached: stop the one that must not be used; if that is the later \
                one, or if it is lost, give this one the standbys that its commits wait for, and restart token-cache
                """
            refusals[host] = .unexpected(text)
            pause(host, from: now)
            return .outdated
        }
        (primary, server, foundAt) = (host, found, now)
        return .used(isFailover: true)
    }

    /// Whether a server was promoted before the last primary, and that one may still be the primary, or has acknowledged what this
    /// one does not have.
    private func isFormer(
        _ found: ServerIdentity, at host: Int, than last: ServerIdentity, _ isProven: Bool
    ) -> Bool {
        // On one host, a restored or upgraded database may begin with timeline 1 again.
        guard found.timeline < last.timeline, let primary, host != primary else { return false }
        return notPrimaryAt[primary] == nil || !isProven
    }

    /// A dial has failed.
    mutating func take(
        _ refusal: PostgresError, from host: Int, begunAt began: MonotonicTime, at now: MonotonicTime
    ) {
        endDial(to: host, begunAt: began)
        refusals[host] = refusal
        notPrimaryAt[host] = refusal == .isStandby ? began : nil
        if primary == host { othersFrom = now }
        pause(host, from: now)
    }

    // MARK: - What is done

    /// Since when all other hosts are known not to be the primary; nil if one of them may be, or if there is no other host.
    private func noOtherPrimary(than host: Int) -> MonotonicTime? {
        let others = notPrimaryAt.indices.filter { $0 != host }.map { notPrimaryAt[$0] }
        return others.contains(nil) ? nil : others.compactMap(\.self).min()
    }

    /// The last primary, and since when no other host can be one; nil if another one may be.
    var evidence: (server: ServerIdentity, since: MonotonicTime)? {
        guard let primary, let server, let since = noOtherPrimary(than: primary) else { return nil }
        return (server, since)
    }

    /// The dials that the caller must begin now.
    ///
    /// - Parameters:
    ///   - orders: How many connections are ordered.
    ///   - replaceOnly: Whether all of them are to replace connections that do not answer.
    mutating func dials(for orders: Int, replaceOnly: Bool, at now: MonotonicTime) -> [NextDial] {
        guard orders > 0 else { return [] }
        let trial = replaceOnly ? Dial.Trial.always : .asNeeded
        var dials: [NextDial] = []
        for host in dialing.indices where notBefore[host] <= now {
            let isLikely = primary == host && refusals[host] == nil
            guard isLikely || primary == nil || othersFrom <= now else { continue }
            // To find out whether another host is the primary, one connection is enough.
            let most = isLikely ? min(orders, Self.dialsAtOnce) : 1
            // A dial whose packets are lost does not hold up others for long.
            while youngDials(of: host, now) < most, dialing[host].count < 2 * Self.dialsAtOnce {
                dialing[host].append(now)
                var trial = trial
                // Its commits do not return, but no other host can be the primary, so tokens can be read there.
                if refusals[host] == .isUnproven, let evidence = noOtherPrimary(than: host),
                    now - evidence <= Fence.validity
                {
                    trial = .none(evidence: evidence)
                }
                dials.append(NextDial(host: host, trial: trial))
            }
        }
        return dials
    }

    private func youngDials(of host: Int, _ now: MonotonicTime) -> Int {
        dialing[host].count { now - $0 < Self.patience }
    }

    /// Why no host is used; nil unless all hosts were asked since this last returned reasons.
    mutating func takeReasons() -> [PostgresError]? {
        let reasons = refusals.compactMap(\.self)
        guard reasons.count == refusals.count else { return nil }
        refusals = refusals.map { _ in nil }
        return reasons
    }
}
#endif
