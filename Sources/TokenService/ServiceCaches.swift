package import TokenStore

/// Tells the answer cache and the session cache of every change in the store.
///
/// Any thread.
package final class ServiceCaches: WriteObserver {
    private let answers: AnswerCache
    private let sessions: SessionCache

    package init(_ answers: AnswerCache, _ sessions: SessionCache) {
        self.answers = answers
        self.sessions = sessions
    }

    package func willWrite(_ ids: [[UInt8]]) { answers.willWrite(ids) }

    package func didWrite(_ ids: [[UInt8]]) { answers.didWrite(ids) }

    package func willExpire(until unixTime: Int64) { answers.willExpire(until: unixTime) }

    package func willEnd(_ sessions: [SessionKey]) { self.sessions.willEnd(sessions) }

    package func didEnd(_ sessions: [SessionKey]) { self.sessions.didEnd(sessions) }

    package func didChangeEverything() {
        answers.didChangeEverything()
        sessions.didChangeEverything()
    }
}
