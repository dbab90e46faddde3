import Glibc
import TokenStore

extension StoreConformance {
    static let administration = [
        Behaviour("removed tokens are gone and counted, the others stay") { open in
            let store = try open { _ in }
            let handle = try await WaitingHandle.open(store)
            for id in ["a", "b", "c"] { try await handle.put("value of \(id)", under: id) }
            let removed = await store.administrator.handle.remove([bytes("a"), bytes("nobody"), bytes("c")])
            try expectEqual(removed, [true, false, true].map(Result.success), "which tokens were removed")
            try expectEqual(try await handle.get("a"), nil, "a removed token")
            try expectEqual(try await handle.get("b"), "value of b", "a token that stays")
            try expectEqual(try await store.administrator.statistics().tokens, 1, "the number of tokens")
            store.close()
        },
        Behaviour("pages that follow one another have every token once") { open in
            let store = try open { _ in }
            let tokens = (0..<105).map {
                (token: Token(id: bytes("id\($0)"), info: bytes("\($0)")), writtenAt: Int64?(7))
            }
            for outcome in await store.administrator.handle.store(tokens, keepsNewer: false) { try outcome.get() }
            for limit in [1, 10, 105, 1_000] {
                var (cursor, found): (String?, [Token]) = (nil, [])
                repeat {
                    let page = try await store.administrator.page(after: cursor, limit: limit)
                    try expect(page.entries.count <= limit, "a page has \(page.entries.count) tokens")
                    found += try page.entries.map { try $0.token.get() }
                    try expect(page.entries.allSatisfy { $0.times.writtenAt == 7 }, "a time of writing is another one")
                    cursor = page.next
                    try expect(cursor == nil || found.count < tokens.count, "an empty page follows the last token")
                } while cursor != nil
                try expectEqual(found.count, 105, "the number of listed tokens")
                try expectEqual(Set(found), Set(tokens.map(\.token)), "what is listed")
            }
            store.close()
        },
        Behaviour("a listing of an empty store has one empty page, and a foreign cursor is refused") { open in
            let store = try open { _ in }
            let page = try await store.administrator.page(after: nil, limit: 10)
            try expect(page.entries.isEmpty && page.next == nil, "there is something")
            let error = try await error { _ = try await store.administrator.page(after: "?", limit: 10) }
            try expectEqual(error.cause, .refused, "the cause")
            store.close()
        },
        Behaviour("newer tokens are left alone where that is asked for") { open in
            let store = try open { _ in }
            let token = { (value: String, time: Int64) in
                (token: Token(id: bytes("a"), info: bytes(value)), writtenAt: Int64?(time))
            }
            let administrator = store.administrator
            try await administrator.handle.store([token("new", 1_000)], keepsNewer: true)[0].get()
            for time: Int64 in [999, 1_000] {
                let refused = try await error {
                    try await administrator.handle.store([token("old", time)], keepsNewer: true)[0].get()
                }
                try expectEqual(refused, .newer, "the error")
            }
            try expectEqual(try await administrator.handle.fetch(bytes("a")), bytes("new"), "the token")
            try await administrator.handle.store([token("old", 999)], keepsNewer: false)[0].get()
            try expectEqual(
                try await administrator.handle.fetch(bytes("a")), bytes("old"), "the token after a replacement")
            store.close()
        },
        Behaviour("operators and clients see one another's tokens, and writes are counted") { open in
            let store = try open { _ in }
            let handle = try await WaitingHandle.open(store)
            try await handle.put("1", under: "a")
            try expectEqual(try await store.administrator.handle.fetch(bytes("a")), bytes("1"), "a client's token")
            let token = (Token(id: bytes("b"), info: bytes("2")), Int64?.none)
            try await store.administrator.handle.store([token], keepsNewer: false)[0].get()
            try expectEqual(try await handle.get("b"), "2", "an operator's token")
            try expectEqual(try await store.administrator.handle.fetch(bytes("c")), nil, "an id without a token")
            try expectEqual(store.metrics.writes, 2, "the number of writes")
            try expect(store.fault == nil, "a sound store has a fault")
            store.close()
        },
    ]
}
