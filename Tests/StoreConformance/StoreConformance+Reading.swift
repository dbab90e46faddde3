import TokenStore

extension StoreConformance {
    static let reading = [
        Behaviour("what is stored is fetched, the last value counts, and nothing else is there") { open in
            let store = try open { _ in }
            let handle = try await WaitingHandle.open(store)
            try expectEqual(try await handle.get("a"), nil, "an id without a token")
            try await handle.put("1", under: "a")
            try await handle.put("2", under: "b")
            try await handle.put("", under: "empty")
            try await handle.put("3", under: "a")
            try expectEqual(try await handle.get("a"), "3", "what was replaced")
            try expectEqual(try await handle.get("b"), "2", "the other token")
            try expectEqual(try await handle.get("empty"), "", "an empty token info")
            store.close()
        },
        Behaviour("ids are bytes: case, NUL and length tell them apart") { open in
            let store = try open { _ in }
            let handle = try await WaitingHandle.open(store)
            let ids = ["a", "A", "a\0", "a\0b", "é", "e\u{301}", "1", "01", " 1"]
            for id in ids { try await handle.put("value of \(id)", under: id) }
            for id in ids { try expectEqual(try await handle.get(id), "value of \(id)", "\(bytes(id))") }
            let binary: [UInt8] = [0xff, 0x00, 0x80]
            try await handle.put(binary, under: binary)
            guard case .found(let found, _, _, _) = try await handle.fetch(binary, if: nil) else {
                throw Violation(description: "an id that is no UTF-8 is not found")
            }
            try expectEqual(found, binary, "a token info that is no UTF-8")
            store.close()
        },
        Behaviour("long token infos come back whole, and are not read when they are longer than was asked for") {
            open in
            let store = try open { _ in }
            let handle = try await WaitingHandle.open(store)
            let long = String(repeating: "x", count: 1 << 20)
            try await handle.put(long, under: "long")
            try expect(try await handle.get("long") == long, "a token info of 1 MiB is another one")
            guard case .longer = try await handle.fetch(bytes("long"), upTo: 1 << 10, if: nil) else {
                throw Violation(description: "a token info beyond the limit is read")
            }
            store.close()
        },
        Behaviour("a write that has ended is seen by every handle at once") { open in
            let store = try open { _ in }
            let (writer, reader) = (try await WaitingHandle.open(store), try await WaitingHandle.open(store))
            for number in 0..<100 {
                try await writer.put("\(number)", under: "a")
                try expectEqual(try await reader.get("a"), "\(number)", "the other handle's value")
            }
            store.close()
        },
        Behaviour("expired tokens are not fetched, from the change of the retention on") { open in
            let store = try open { _ in }
            let handle = try await WaitingHandle.open(store)
            let old = (token: Token(id: bytes("old"), info: bytes("1")), writtenAt: Int64?(1_000))
            for outcome in await store.administrator.handle.store([old], keepsNewer: false) { try outcome.get() }
            try await handle.put("2", under: "new")
            guard case .found(_, writtenAt: 1_000, _, _) = try await handle.fetch(bytes("old"), if: nil) else {
                throw Violation(description: "a token comes without the time at which it was written")
            }
            guard case .found(_, _, until: .max, _) = try await handle.fetch(bytes("new"), if: nil) else {
                throw Violation(description: "a token that is kept for ever has an end")
            }
            store.change(Retention(afterWritten: .seconds(3_600)))
            // Soon, but not at once.
            for _ in 0..<30_000 where try await handle.get("old") != nil { try await Task.sleep(for: .milliseconds(1)) }
            try expectEqual(try await handle.get("old"), nil, "an expired token")
            guard case .found(_, _, let deadline, _) = try await handle.fetch(bytes("new"), if: nil) else {
                throw Violation(description: "a token that has not expired is not found")
            }
            try expect(deadline > 1_000_000 && deadline < .max, "a token that expires has no end")
            store.change(Retention())
            try expectEqual(try await handle.get("new"), "2", "a token that is kept again")
            store.close()
        },
    ]
}
