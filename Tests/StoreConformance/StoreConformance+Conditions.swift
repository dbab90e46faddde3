import TokenStore

extension StoreConformance {
    static let conditions = [
        Behaviour("each write gives a token a greater version, which a read finds") { open in
            let store = try open { _ in }
            let handle = try await WaitingHandle.open(store)
            var last = try await handle.put("1", under: "a", if: .any)
            for value in ["1", "2", "2"] {
                let version = try await handle.put(value, under: "a", if: .any)
                try expect(version > last, "a later version is \(version) after \(last)")
                try expectEqual(try await handle.version(of: "a"), version, "the version that is read")
                last = version
            }
            try await handle.remove("a")
            try expect(
                try await handle.put("1", under: "a", if: .any) > last, "a version was given again after a removal")
            last = try await handle.put("1", under: "b", if: .any)
            store.close()
            let again = try open { _ in }
            let other = try await WaitingHandle.open(again)
            try expectEqual(try await other.version(of: "b"), last, "the version when the store was opened again")
            try expect(
                try await other.put("1", under: "a", if: .any) > last, "a version was given again by the next start")
            again.close()
        },
        Behaviour("a write happens only if its condition holds, and otherwise tells the present version") { open in
            let store = try open { _ in }
            let handle = try await WaitingHandle.open(store)
            let older = TokenVersion(rawValue: -1)
            for match in [WriteCondition.Match.exists, .oneOf([older])] {
                let error = try await error { try await handle.put("1", under: "a", if: match) }
                try expectEqual(error, .preconditionFailed(current: nil), "the error without a token")
            }
            try expectEqual(try await handle.get("a"), nil, "the token that was not stored")
            var version = try await handle.put("1", under: "a", if: .missing)
            for match in [WriteCondition.Match.missing, .oneOf([]), .oneOf([older]), .noneOf([older, version])] {
                let refusal = try await error { try await handle.put("2", under: "a", if: match) }
                try expectEqual(refusal, .preconditionFailed(current: version), "the error with a token")
                let other = try await error { try await handle.remove("a", if: match) }
                try expectEqual(other, .preconditionFailed(current: version), "the error of a removal")
            }
            try expectEqual(try await handle.get("a"), "1", "the token that was not replaced")
            try expectEqual(try await handle.version(of: "a"), version, "its version")
            version = try await handle.put("2", under: "a", if: .oneOf([older, version]))
            version = try await handle.put("3", under: "a", if: .noneOf([older]))
            version = try await handle.put("4", under: "a", if: .exists)
            try expectEqual(try await handle.get("a"), "4", "the token that was replaced")
            try expectEqual(try await handle.remove("a", if: .oneOf([version])), true, "whether a token was removed")
            try expectEqual(try await handle.remove("a"), false, "whether a missing token was removed")
            store.close()
        },
        Behaviour("of two conditional writes in one group the second one finds the first") { open in
            let store = try open { _ in }
            let handle = try await WaitingHandle.open(store)
            var outcomes = try await handle.putAll([("a", bytes("1")), ("a", bytes("2"))], if: .missing)
            let first = try outcomes[0].get()
            try expectEqual(outcomes[1], .failure(.preconditionFailed(current: first)), "the second outcome")
            try expectEqual(try await handle.get("a"), "1", "the token")
            outcomes = try await handle.putAll([("a", bytes("3")), ("a", bytes("4"))], if: .oneOf([first]))
            let second = try outcomes[0].get()
            try expectEqual(outcomes[1], .failure(.preconditionFailed(current: second)), "the second outcome")
            try expectEqual(try await handle.get("a"), "3", "the token")
            store.close()
        },
        Behaviour("a token that has expired counts as missing") { open in
            let store = try open { $0.retention = Retention(afterWritten: .seconds(3_600)) }
            let handle = try await WaitingHandle.open(store)
            let old = (token: Token(id: bytes("a"), info: bytes("1")), writtenAt: Int64?(MemoryRow.now - 7_200))
            for outcome in await store.administrator.handle.store([old], keepsNewer: false) { try outcome.get() }
            let error = try await error { try await handle.put("2", under: "a", if: .exists) }
            try expectEqual(error, .preconditionFailed(current: nil), "the error")
            try expectEqual(try await handle.remove("a"), false, "whether a token was removed")
            try await handle.put("3", under: "a", if: .missing)
            try expectEqual(try await handle.get("a"), "3", "the token")
            store.close()
        },
    ]
}
