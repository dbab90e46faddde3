internal import TokenStore

/// Sessions that have ended, for the observer of writes.
struct EndedSessions {
    private(set) var keys: [SessionKey] = []
    /// Whether there are others, whose rows do not open.
    private(set) var hasOthers = false

    var isEmpty: Bool { keys.isEmpty && !hasOthers }

    /// - Parameter key: Nil for a session whose row does not open.
    mutating func note(_ key: SessionKey?) {
        if let key { keys.append(key) } else { hasOthers = true }
    }

    mutating func add(_ others: EndedSessions) {
        keys += others.keys
        hasOthers = hasOthers || others.hasOthers
    }
}

extension WriteObserver {
    /// These sessions are about to end.
    func willEnd(_ ended: EndedSessions) {
        if !ended.keys.isEmpty { willEnd(ended.keys) }
        if ended.hasOthers { didChangeEverything() }
    }

    /// The change that `willEnd` has announced is over.
    func didEnd(_ ended: EndedSessions) {
        if !ended.keys.isEmpty { didEnd(ended.keys) }
        if ended.hasOthers { didChangeEverything() }
    }
}
