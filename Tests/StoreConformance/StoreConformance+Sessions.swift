import Synchronization
import TokenStore

extension StoreConformance {
    static let sessions = [
        Behaviour("a session is found by its secret, with its user, in every handle and after a restart") { open in
            let store = try open { _ in }
            let (one, two) = (try await WaitingHandle.open(store), try await WaitingHandle.open(store))
            let now = MemoryRow.now
            try expectEqual(try await one.find("s1"), nil, "a session that was never made")
            let made = try await one.begin("s1", of: "anna", createdAt: now)
            try await one.begin("s2", of: "berta")
            let expected = UserSession(
                id: made.id, user: bytes("anna"), createdAt: now, expiresAt: now + 3_600, lastUsedAt: now)
            try expectEqual(try await two.find("s1"), expected, "the session")
            try expectEqual(try await two.find("s2")?.user, bytes("berta"), "another session's user")
            try expectEqual(try await two.find("s3"), nil, "another secret")
            store.close()
            let again = try open { _ in }
            let other = try await WaitingHandle.open(again)
            try expectEqual(try await other.find("s1"), expected, "the session after a restart")
            try expectEqual(try await other.list("anna"), [expected], "the user's sessions after a restart")
            again.close()
        },
        Behaviour("sessions end one by one or all of a user, and no other") { open in
            let store = try open { _ in }
            let handle = try await WaitingHandle.open(store)
            let first = try await handle.begin("s1", of: "anna")
            for secret in ["s2", "s3"] { try await handle.begin(secret, of: "anna") }
            let other = try await handle.begin("s4", of: "berta")
            try expectEqual(try await handle.list("anna").map(\.id).first, first.id, "the oldest session")
            try expectEqual(
                try await handle.endSession(id: first.id), EndedSession(id: first.id, user: bytes("anna")),
                "the ended session")
            try expectEqual(try await handle.endSession(id: first.id), nil, "a session that had ended")
            try expectEqual(try await handle.find("s1"), nil, "the ended session")
            try expectEqual(try await handle.find("s2")?.user, bytes("anna"), "the other session of the user")
            try expectEqual(try await handle.endSessions(of: bytes("anna")), 2, "the number of ended sessions")
            try expectEqual(try await handle.endSessions(of: bytes("anna")), 0, "the number of sessions that were left")
            try expectEqual(try await handle.list("anna"), [], "the user's sessions")
            try expectEqual(try await handle.find("s3"), nil, "an ended session")
            try expectEqual(try await handle.find("s4")?.id, other.id, "the other user's session")
            store.close()
        },
        Behaviour("a user has as many sessions as asked for, and the oldest ones end") { open in
            let store = try open { _ in }
            let handle = try await WaitingHandle.open(store)
            try await handle.begin("other", of: "berta")
            for number in 0..<3 {
                try expectEqual(
                    try await handle.begin("s\(number)", of: "anna", perUser: 3).ended, 0, "those that ended")
            }
            try expectEqual(try await handle.begin("s3", of: "anna", perUser: 3).ended, 1, "those that ended")
            try expectEqual(try await handle.find("s0"), nil, "the oldest session")
            try expectEqual(try await handle.begin("s4", of: "anna", perUser: 1).ended, 3, "those that ended")
            for number in 0..<4 { try expectEqual(try await handle.find("s\(number)"), nil, "an older session") }
            try expect(try await handle.find("s4") != nil, "the new session ended")
            try expect(try await handle.find("other") != nil, "another user's session ended")
            store.close()
        },
        Behaviour("an expired session is not found, and a use is noted") { open in
            let store = try open { _ in }
            let handle = try await WaitingHandle.open(store)
            let now = MemoryRow.now
            try await handle.begin("old", of: "anna", createdAt: now - 100, lasting: 50)
            try await handle.begin("new", of: "anna", createdAt: now - 100, lasting: 5_000)
            try expectEqual(try await handle.find("old"), nil, "the expired session")
            try expectEqual(try await handle.list("anna").count, 1, "the number of sessions")
            for time in [now, now - 50] {
                try await handle.use("new", at: time)
                // A change after it, which is durable when both are.
                try await handle.put("1", under: "a")
                try expectEqual(try await handle.find("new")?.lastUsedAt, now, "the last use")
            }
            store.close()
        },
        Behaviour("a write that depends on a session fails when that has ended") { open in
            let store = try open { _ in }
            let handle = try await WaitingHandle.open(store)
            let made = try await handle.begin("s1", of: "anna")
            let key = try await handle.key("s1")
            try await handle.put("1", under: "anna", if: .any, session: key)
            _ = try await handle.endSession(id: made.id)
            for match in [WriteCondition.Match.any, .exists, .missing] {
                let error = try await error { try await handle.put("2", under: "anna", if: match, session: key) }
                try expectEqual(error, .sessionEnded, "the error")
            }
            let now = MemoryRow.now
            try await handle.begin("s2", of: "anna", createdAt: now - 100, lasting: 50)
            let expired = try await handle.key("s2")
            let error = try await error { try await handle.put("2", under: "anna", if: .any, session: expired) }
            try expectEqual(error, .sessionEnded, "the error of an expired session")
            try expectEqual(try await handle.get("anna"), "1", "the token")
            store.close()
        },
        Behaviour("a read that depends on a session fails when that has ended") { open in
            let store = try open { _ in }
            let handle = try await WaitingHandle.open(store)
            let made = try await handle.begin("s1", of: "anna")
            try await handle.begin("s2", of: "anna", createdAt: MemoryRow.now - 100, lasting: 50)
            let (key, expired) = (try await handle.key("s1"), try await handle.key("s2"))
            try await handle.put("token of anna", under: "anna")
            for hasEnded in [false, true] {
                if hasEnded { _ = try await handle.endSession(id: made.id) }
                for (limit, found) in [(1, "longer"), (1_000, "token of anna"), (.max, "token of anna")] {
                    // So many that a store may read them together.
                    let reads: [(String, SessionKey?)] = [
                        ("anna", key), ("anna", nil), ("none", key), ("none", nil), ("anna", expired),
                    ]
                    let outcomes = try await handle.fetchAll(reads, upTo: limit).map { outcome in
                        switch outcome {
                        case .success(.found(let info, _, _, _)): String(decoding: info, as: UTF8.self)
                        case .success(.nothing): "nothing"
                        case .success(.longer): "longer"
                        case .success(.unrefreshed): "unrefreshed"
                        case .failure(let error): error == .sessionEnded ? "ended" : "\(error)"
                        }
                    }
                    let expected =
                        hasEnded
                        ? ["ended", found, "ended", "nothing", "ended"] : [found, found, "nothing", "nothing", "ended"]
                    try expectEqual(outcomes, expected, "what is found of up to \(limit) bytes")
                }
            }
            store.close()
        },
        Behaviour("no read that depends on a session finds what was stored after its end") { open in
            let store = try open { _ in }
            let (handle, other) = (try await WaitingHandle.open(store), try await WaitingHandle.open(store))
            for round in 0..<10 {
                let (user, secret) = ("user \(round)", "secret \(round)")
                let made = try await other.begin(secret, of: user)
                try await other.put("old", under: user)
                async let found = infos(of: user, readBy: secret, handle)
                _ = try await other.endSession(id: made.id)
                try await other.put("new", under: user)
                try expect(try await found.isSubset(of: ["old"]), "the holder of an ended session has read a new token")
            }
            store.close()
        },
        Behaviour("an erased user has no token and no sessions, and may come again") { open in
            let store = try open { _ in }
            let handle = try await WaitingHandle.open(store)
            for user in ["anna", "berta"] {
                try await handle.put("token of \(user)", under: user)
                try await handle.begin("1 of \(user)", of: user)
                try await handle.begin("2 of \(user)", of: user)
            }
            try expectEqual(try await handle.erase("anna"), Erasure(hadToken: true, sessions: 2), "what was erased")
            try expectEqual(try await handle.erase("anna"), Erasure(hadToken: false, sessions: 0), "what was left")
            try expectEqual(try await handle.get("anna"), nil, "the token")
            try expectEqual(try await handle.find("1 of anna"), nil, "a session")
            try expectEqual(try await handle.list("anna"), [], "the sessions")
            try expectEqual(try await handle.get("berta"), "token of berta", "another user's token")
            try expectEqual(try await handle.list("berta").count, 2, "another user's sessions")
            try await handle.put("again", under: "anna", if: .missing)
            store.close()
            let again = try open { _ in }
            let other = try await WaitingHandle.open(again)
            try expectEqual(try await other.get("anna"), "again", "the token that was stored later")
            try expectEqual(try await other.list("anna"), [], "the sessions after a restart")
            again.close()
        },
        Behaviour("nothing that began before an erasure, or needs a session that it ends, brings the user back") {
            open in
            let store = try open { _ in }
            let (handle, other) = (try await WaitingHandle.open(store), try await WaitingHandle.open(store))
            for round in 0..<10 {
                let (user, secret) = ("user \(round)", "secret \(round)")
                try await handle.begin(secret, of: user)
                let session = round.isMultiple(of: 2) ? try await handle.key(secret) : nil
                if round.isMultiple(of: 3) { try await handle.put("before", under: user) }
                // Handed over before the erasure, by another handle than that, or the same one; it may fail.
                let writing = round < 5 ? other : handle
                let begun = try await writing.begin([(user, "during")], session: session).writes
                try await writing.flush()
                async let login = try? writing.begin("another \(round)", of: user)
                try await handle.erase(user)
                _ = await login
                while begun.ended.isEmpty { await Task.yield() }
                try expectEqual(try await handle.get(user), nil, "the token")
                try expectEqual(try await handle.find(secret), nil, "the session")
                let ended = try await handle.key(secret)
                for match in [WriteCondition.Match.any, .exists, .missing] {
                    let refused = try await error {
                        try await other.put("after", under: user, if: match, session: ended)
                    }
                    try expectEqual(refused, .sessionEnded, "the error")
                }
                try expectEqual(try await handle.get(user), nil, "the token after writes that depend on the session")
                try await handle.begin("new \(round)", of: user)
                let new = try await handle.key("new \(round)")
                try await handle.put("again", under: user, if: .missing, session: new)
                try expectEqual(try await other.get(user), "again", "the token of the user who came again")
            }
            store.close()
        },
        Behaviour("an observer learns of each session that ends before and after it does") { open in
            let store = try open { _ in }
            guard store.seesAllWrites else { return store.close() }
            let observer = WriteRecorder()
            store.report(writesTo: observer)
            let handle = try await WaitingHandle.open(store)
            for secret in ["s1", "s2", "s3", "s4"] {
                let key = try await handle.key(secret)
                observer.names.withLock { $0[key] = secret }
            }
            let made = try await handle.begin("s1", of: "anna")
            for secret in ["s2", "s3"] { try await handle.begin(secret, of: "anna", perUser: 2) }
            try await handle.begin("s4", of: "berta")
            _ = try await handle.endSession(id: made.id)
            _ = try await handle.endSessions(of: bytes("anna"))
            let seen = observer.take().filter { $0 != "expire" }
            try expectEqual(seen, ["end s1", "ended s1", "end s2 s3", "ended s2 s3"], "what it has seen")
            store.close()
        },
    ]

    /// What a user's reads find until the session has ended.
    private static func infos(
        of user: String, readBy secret: String, _ handle: WaitingHandle
    ) async throws -> Set<String> {
        let key = try await handle.key(secret)
        var infos: Set<String> = []
        do {
            while true {
                if case .found(let info, _, _, _) = try await handle.fetch(bytes(user), if: key) {
                    infos.insert(String(decoding: info, as: UTF8.self))
                }
            }
        } catch StoreError.sessionEnded {
            return infos
        }
    }
}
