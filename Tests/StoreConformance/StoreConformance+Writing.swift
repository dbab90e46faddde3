import TokenStore

extension StoreConformance {
    static let writing = [
        Behaviour("writes of many handles at once are all kept, also when the store is opened again") { open in
            let store = try open { _ in }
            let handles = [try await WaitingHandle.open(store), try await WaitingHandle.open(store)]
            try await withThrowingTaskGroup(of: Void.self) { group in
                for start in stride(from: 0, to: 200, by: 5) {
                    group.addTask {
                        let (handle, ids) = (handles[start % 2], (start..<start + 5).map { "id \($0)" })
                        let outcomes = try await handle.putAll(ids.enumerated().map { ($1, bytes("\(start + $0)")) })
                        for (id, outcome) in zip(ids, outcomes) {
                            try expectEqual(try outcome.get(), try await handle.version(of: id), "the version of \(id)")
                        }
                    }
                }
                try await group.waitForAll()
            }
            store.close()
            let again = try open { _ in }
            let handle = try await WaitingHandle.open(again)
            for number in 0..<200 {
                try expectEqual(try await handle.get("id \(number)"), "\(number)", "id \(number)")
            }
            again.close()
        },
        Behaviour("each completion is called once, after the flush, in the order of the writes") { open in
            let store = try open { _ in }
            let handle = try await WaitingHandle.open(store)
            let writes = (0..<300).map { (id: "id \($0 % 7)", value: "\($0)") }
            let (begun, endedAtOnce) = try await handle.begin(writes)
            try expectEqual(endedAtOnce, [], "the completions before the flush")
            try await handle.flush()
            while begun.ended.count < writes.count { try await Task.sleep(for: .milliseconds(10)) }
            // Some time for those that come twice.
            try await Task.sleep(for: .milliseconds(50))
            try expectEqual(begun.ended, Array(0..<300), "the completions")
            for number in 293..<300 {
                try expectEqual(try await handle.get("id \(number % 7)"), "\(number)", "the last of several values")
            }
            store.close()
        },
        Behaviour("a closed store refuses writes and keeps what it had") { open in
            let store = try open { _ in }
            let handle = try await WaitingHandle.open(store)
            try await handle.put("1", under: "a")
            store.close()
            try expectEqual(try await error { try await handle.put("2", under: "a") }, .closed, "the error")
            let again = try open { _ in }
            try expectEqual(try await WaitingHandle.open(again).get("a"), "1", "the value from before")
            again.close()
        },
        Behaviour("an observer learns of each write before it begins and after it has ended") { open in
            let store = try open { _ in }
            guard store.seesAllWrites else { return store.close() }
            let observer = WriteRecorder()
            store.report(writesTo: observer)
            let handle = try await WaitingHandle.open(store)
            try await handle.put("1", under: "a")
            let token = (Token(id: bytes("b"), info: []), Int64?.none)
            try await store.administrator.handle.store([token], keepsNewer: false)[0].get()
            _ = try await store.administrator.handle.remove([bytes("a")])[0].get()
            let seen = observer.take().filter { $0 != "expire" }
            try expectEqual(seen, ["will a", "did a", "will b", "did b", "will a", "did a"], "what it has seen")
            store.close()
        },
        Behaviour("a write beyond the queue's limit fails at once, may be retried, and leaves the former value") {
            open in
            let store = try open { $0.queueLimit = 4_096 }
            let handle = try await WaitingHandle.open(store)
            try await handle.put("1", under: "a")
            let long = String(repeating: "x", count: 8_192)
            let error = try await error { try await handle.put(long, under: "a") }
            try expectEqual(error.cause, .overloaded, "the cause")
            try expect(error.mayRetry, "the error says that a retry cannot help")
            try expectEqual(try await handle.get("a"), "1", "the value")
            try await handle.put("2", under: "a")
            try expectEqual(try await handle.get("a"), "2", "the value after a write that fits")
            store.close()
        },
    ]
}
