import TokenStore

extension StoreConformance {
    static let limits = [
        Behaviour("a write beyond the queue's limit fails at once, may be retried, and leaves the former value") {
            open in
            let store = try open { $0.queueLimit = 4_096 }
            let handle = try await ConformanceHandle.open(store)
            try await handle.put("1", under: "a")
            let long = String(repeating: "x", count: 8_192)
            let error = try await error { try await handle.put(long, under: "a") }
            try expectEqual(error.cause, .overloaded, "the cause")
            try expect(error.mayRetry, "the error says that a retry cannot help")
            try expectEqual(try await handle.get("a"), "1", "the value")
            try await handle.put("2", under: "a")
            try expectEqual(try await handle.get("a"), "2", "the value after a write that fits")
            store.close()
        }
    ]
}
