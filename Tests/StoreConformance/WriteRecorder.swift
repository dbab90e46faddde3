import Synchronization
import TokenStore

/// Notes what a store tells its observer, in order.
package final class WriteRecorder: WriteObserver {
    private let calls = Mutex<[String]>([])
    /// The sessions that have ended.
    package let ended = Mutex<Set<SessionKey>>([])
    /// What sessions are called in the notes; others are `?`.
    package let names = Mutex<[SessionKey: String]>([:])

    package init() {}

    package func willWrite(_ ids: [[UInt8]]) { note("will", ids) }
    package func didWrite(_ ids: [[UInt8]]) { note("did", ids) }
    package func willExpire(until unixTime: Int64) { note("expire", of: []) }
    package func willEnd(_ sessions: [SessionKey]) { note("end", sessions) }
    package func didChangeEverything() { note("everything", of: []) }

    package func didEnd(_ sessions: [SessionKey]) {
        note("ended", sessions)
        ended.withLock { $0.formUnion(sessions) }
    }

    private func note(_ call: String, _ ids: [[UInt8]]) {
        note(call, of: ids.map { String(decoding: $0, as: UTF8.self) })
    }

    private func note(_ call: String, _ sessions: [SessionKey]) {
        note(call, of: names.withLock { names in sessions.map { names[$0] ?? "?" } })
    }

    private func note(_ call: String, of names: [String]) {
        calls.withLock { $0.append(([call] + names.sorted()).joined(separator: " ")) }
    }

    /// The notes since the last call, such as `will a b`, without writes of no token.
    package func take() -> [String] {
        calls.withLock { calls in
            defer { calls = [] }
            return calls.filter { $0 != "will" && $0 != "did" }
        }
    }
}
