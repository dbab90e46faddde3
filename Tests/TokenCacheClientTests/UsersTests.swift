import Foundation
import TestSupport
import Testing

@testable import TokenCacheClient

@Suite struct UsersTests {
    let clock = TestClock()
    let directory = TemporaryDirectory()
    let folder: URL

    init() throws {
        folder = URL(filePath: directory.path).appending(path: "users")
    }

    private func cache(_ id: String) -> LocalTokenCache {
        LocalTokenCache(.directory(folder), user: id)
    }

    private func users() -> Users {
        Users(directory: folder) { [folder, clock] id in
            if id == "broken" { throw Trouble() }
            return patientSession(cache: LocalTokenCache(.directory(folder), user: id), now: { clock.now })
        }
    }

    @Test func `users are added, switched and remembered`() async throws {
        let users = users()
        #expect(try await users.all().isEmpty)
        #expect(try await users.current() == nil)
        let anna = try await users.switch(to: "a", name: "Anna")
        let token = TokenInformation(token: "of a", refreshDate: clock.now, loginID: "1")
        try await anna.open(login: { token })
        let bert = try await users.switch(to: "b", name: "Bert")
        #expect(anna.state == .closed)
        #expect(try await bert.open() == .created)
        let other = TokenInformation(token: "of b", refreshDate: clock.now, loginID: "2")
        try await bert.open(login: { other })
        #expect(try await users.switch(to: "b") === bert)
        let again = try await users.switch(to: "a")
        #expect(try await again.open() == .open)
        #expect(try await again.token() == token)
        // The same object serves for as long as the user is the current one, also after a sign-out.
        try await again.signOut()
        #expect(try await users.switch(to: "a") === again)
        #expect(try await self.users().all().map(\.name) == ["Anna", "Bert"])
        // Nothing is written then, for which a full disk may have no room.
        let list = folder.appending(path: "users.jsonl").path
        let before = try FileManager.default.attributesOfItem(atPath: list)[.systemFileNumber] as? UInt64
        try await self.users().switch(to: "a")
        #expect(try FileManager.default.attributesOfItem(atPath: list)[.systemFileNumber] as? UInt64 == before)
        #expect(try await self.users().current()?.id == "a")
        #expect(try await cache("b").fetch() == other)
    }

    @Test func `a refresh that ends after its user was forgotten is not stored`() async throws {
        let (remote, disk, gate) = (MemoryCache(TokenInformation(token: "one")), TestStorage(), Gate())
        let users = Users(directory: folder) { [clock] _ in
            patientSession(cache: layeredCache(remote, on: disk), now: { clock.now })
        }
        let session = try await users.switch(to: "a")
        #expect(try await session.open() == .open)
        gate.shut()
        let refreshing = Task {
            try await session.token(forcingRefresh: true) { old in
                await gate.pass()
                return old.refreshed(token: "two")
            }
        }
        await gate.reached()
        #expect(try await users.forget("a"))
        gate.open()
        await #expect(throws: TokenSessionError.closed) { try await refreshing.value }
        await session.close()
        #expect(remote.information == nil)
    }

    @Test func `a forgotten user's token is cleared, and the others' stay`() async throws {
        let users = users()
        for id in ["a", "b", "c"] {
            try await users.switch(to: id).open(login: { TokenInformation(token: id) })
        }
        let current = try #require(await users.session)
        let told = Locked<Bool?>(nil)
        #expect(try await users.forget("a") { told.current = $0 })
        #expect(told.current == true)
        try await users.forget("c")
        try await users.forget("unknown")
        #expect(current.state == .closed)
        #expect(await users.session == nil)
        #expect(try await users.all().map(\.id) == ["b"])
        #expect(try await users.current() == nil)
        #expect(try await cache("a").record() == nil)
        #expect(try await cache("b").fetch()?.token == "b")
        #expect(try await cache("c").fetch() == nil)
    }

    @Test func `a session that cannot be made changes nothing`() async throws {
        let users = users()
        let anna = try await users.switch(to: "a")
        await #expect(throws: Trouble.self) { try await users.switch(to: "broken") }
        #expect(await users.session === anna)
        #expect(anna.state == .created)
        #expect(try await users.all().map(\.id) == ["a"])
    }

    @Test func `of a damaged list nothing is lost that can be read, and the next switch mends it`() async throws {
        for (id, name) in [("a", "Anna"), ("b", "Bert"), ("c", "Carl")] {
            try await users().switch(to: id, name: name)
        }
        let file = folder.appending(path: "users.jsonl")
        let lines = try String(contentsOf: file, encoding: .utf8).split(separator: "\n")
        for (text, left, current) in [
            ("\(lines[0])\nrubbish\n\(lines[2])\n", ["Carl", "Anna"], "c"),
            // The current user's line, by a byte, and a file that was cut off.
            ("x\(lines[0])\n\(lines[1])\n\(lines[2].dropLast(3))", ["Bert"], nil),
            ("", [], nil),
        ] {
            try Data(text.utf8).write(to: file)
            #expect(try await users().all().map(\.name) == left)
            #expect(try await users().current()?.id == current)
            try await users().switch(to: "d", name: "Dora")
            #expect(try await users().all().map(\.name) == ["Dora"] + left)
        }
        try FileManager.default.removeItem(at: file)
        try FileManager.default.createDirectory(at: file, withIntermediateDirectories: false)
        await #expect(throws: TokenCacheError.self) { try await users().all() }
    }

    @Test func `a hundred switches at once leave one open session`() async throws {
        let users = users()
        let sessions = try await withThrowingTaskGroup(of: TokenSession.self) { group in
            for index in 0..<100 { group.addTask { try await users.switch(to: "\(index % 7)") } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        let open = sessions.filter { !$0.state.isClosed }
        #expect(!open.isEmpty)
        let session = try #require(await users.session)
        #expect(open.allSatisfy { $0 === session })
        #expect(try await users.all().count == 7)
    }
}
