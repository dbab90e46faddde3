import Foundation
import Metrics
import TestSupport
import Testing

@testable import TokenStore

@Suite struct ExpiryClockTests {
    private static let start: Int64 = 1_795_000_000
    private static let (hour, day): (Int64, Int64) = (3_600, 86_400)

    /// A clock after so many seconds, by which the wall clock is off.
    private func reading(_ running: Int64, off: Int64 = 0) -> ExpiryClock.Reading {
        ExpiryClock.Reading(wall: Self.start + running + off, running: 1_000 + running)
    }

    @Test("clocks that part by no more than a day between two looks hold nothing up, however far they part in all")
    func drift() {
        var clock = ExpiryClock(saved: Self.start, at: reading(0))
        for look in 1...40 {
            clock.look(at: reading(Int64(look) * 60, off: Int64(look) * Self.day))
            #expect(!clock.holdsExpiry)
        }
        for look in 1...40 {
            clock.look(at: reading(Int64(40 + look) * 60, off: Int64(40 - look) * Self.day))
            #expect(!clock.holdsExpiry)
        }
    }

    @Test(
        "after a jump nothing expires until the clock is back", arguments: [-1, 1] as [Int64])
    func jumpThatIsMended(_ sign: Int64) {
        var clock = ExpiryClock(saved: Self.start, at: reading(0))
        let jump = sign * (Self.day + 1)
        clock.look(at: reading(60, off: jump))
        #expect(clock.holdsExpiry && clock.deviation == jump)
        clock.look(at: reading(11 * Self.hour, off: jump))
        #expect(clock.holdsExpiry)
        clock.look(at: reading(11 * Self.hour + 60))
        #expect(!clock.holdsExpiry && clock.deviation == 0)
    }

    @Test("a clock that stays where it jumped to is taken as right after twelve hours, suspension included")
    func jumpThatStays() {
        for looks in [[12 * Self.hour + 60], Array(stride(from: 120, through: 12 * Self.hour + 60, by: 60))] {
            var clock = ExpiryClock(saved: Self.start, at: reading(0))
            clock.look(at: reading(60, off: 900 * Self.day))
            for look in looks {
                #expect(clock.holdsExpiry)
                clock.look(at: reading(look, off: 900 * Self.day))
            }
            #expect(!clock.holdsExpiry)
        }
    }

    @Test("each further jump begins the twelve hours anew")
    func furtherJumps() {
        var clock = ExpiryClock(saved: Self.start, at: reading(0))
        for jump in 1...5 {
            clock.look(at: reading(Int64(jump) * 11 * Self.hour, off: Int64(jump) * 10 * Self.day))
            #expect(clock.holdsExpiry)
        }
        clock.look(at: reading(67 * Self.hour, off: 50 * Self.day))
        #expect(!clock.holdsExpiry)
    }

    @Test("a start more than a day from the last look counts as a jump, one without a last look does not")
    func start() {
        #expect(!ExpiryClock(saved: nil, at: reading(0)).holdsExpiry)
        for (stopped, isHeld) in [(0, false), (Self.day, false), (Self.day + 1, true), (-Self.day - 1, true)] {
            #expect(ExpiryClock(saved: Self.start - stopped, at: reading(0)).holdsExpiry == isHeld)
        }
        for wild in [Int64.min, 0, .max] {
            var clock = ExpiryClock(saved: wild, at: reading(0))
            #expect(clock.holdsExpiry)
            clock.look(at: reading(12 * Self.hour))
            #expect(!clock.holdsExpiry)
        }
    }

    @Test("the last look is stored every hour while tokens expire or are written, and not while the clock is in doubt")
    func saving() {
        var clock = ExpiryClock(saved: Self.start, at: reading(0))
        #expect(clock.due(isExpiring: true) == nil)
        clock.look(at: reading(Self.hour))
        #expect(clock.due(isExpiring: true) == nil)
        clock.look(at: reading(Self.hour + 1))
        #expect(clock.due(isExpiring: false) == nil)
        clock.noteWrite()
        #expect(clock.due(isExpiring: false) == Self.start + Self.hour + 1)
        #expect(clock.due(isExpiring: true) == Self.start + Self.hour + 1)
        clock.noteSaved(Self.start + Self.hour + 1)
        #expect(clock.due(isExpiring: true) == nil)
        clock.look(at: reading(2 * Self.hour, off: -2 * Self.hour))
        #expect(clock.due(isExpiring: true) == Self.start, "it went back a little")
        clock.look(at: reading(3 * Self.hour, off: 9 * Self.day))
        clock.noteWrite()
        #expect(clock.due(isExpiring: true) == nil, "it is in doubt")
        #expect(ExpiryClock(saved: nil, at: reading(0)).due(isExpiring: true) == Self.start)
    }

    @Test("a start long after the last look drops nothing and says so; a clock that is right has tokens dropped")
    func store() async throws {
        let folder = try TemporaryDirectory()
        let events = Events()
        let open = {
            try SQLiteTokenStore(at: folder.path, events: events) {
                $0.retention = Retention(sinceWritten: .seconds(60))
            }
        }
        let now = Int64(Date.now.timeIntervalSince1970)
        // Created just now, which is a look at the clock.
        let first = try SQLiteTokenStore(at: folder.path)
        _ = await StoreAdministrator(first).store([(Token(id: [65], info: [66]), now - 5_000)])
        first.close()
        try await lookedAt(now - 3 * Self.day, in: folder)
        let second = try open()
        try await eventually { events.all.contains { if case .expiryHeld = $0 { true } else { false } } }
        #expect(second.metrics.expiryHeld.value == 1)
        #expect(try await StoreAdministrator(second).statistics().tokens == 1)
        #expect(try await SessionActor.open(second).get("A") == nil, "it is not given out all the same")
        // Without retention nothing is held.
        try await second.change(Retention())
        try await eventually { second.metrics.expiryHeld.value == 0 }
        second.close()
        try await lookedAt(now, in: folder)
        let third = try open()
        defer { third.close() }
        try await eventually { try await StoreAdministrator(third).statistics().tokens == 0 }
        #expect(third.metrics.expiryHeld.value == 0)
    }

    /// Changes the time of the last look in a store that nobody has open.
    private func lookedAt(_ time: Int64, in folder: TemporaryDirectory) async throws {
        let connection = try SQLiteConnection(path: folder.path + "/tokens.db", mode: .readWrite)
        try connection.execute("UPDATE store SET looked_at = \(time)")
    }

    private func eventually(_ isSo: () async throws -> Bool) async throws {
        for _ in 0..<1_000 where try await !isSo() { try await Task.sleep(for: .milliseconds(10)) }
        #expect(try await isSo())
    }

    @Test("a store that is sealed or unsealed keeps the last look")
    func lookOfConverted() async throws {
        let data = try TemporaryDirectory()
        try SQLiteTokenStore(at: data.path) { $0.isSealed = false }.close()
        try await lookedAt(1_000, in: data)
        let options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: data.path))
        for isSealed in [true, false] {
            do {
                let replacement = try StoreReplacement(directory: data.path, options: options) { _ in }
                _ = try replacement.convert(isSealed: isSealed) { _ in }
            }
            let connection = try SQLiteConnection(path: data.path + "/tokens.db", mode: .readWrite)
            #expect(try connection.integer("SELECT looked_at FROM store") == 1_000)
        }
    }

    @Test("the last look is known to a store whose log cannot be moved at the start")
    func lookBesideFault() throws {
        let data = try TemporaryDirectory()
        let path = data.path + "/tokens.db"
        var reader: SQLiteConnection?
        do {
            let store = try WriterHarness(data.path)
            try store.store("one", bytes: 100)
            _ = try store.database.perform { (committer) throws(SQLiteError) in try committer.saveClockLook(1_000) }
            // Whoever still reads an earlier state keeps the log from being moved.
            reader = try SQLiteConnection(path: path, mode: .readOnly)
            try reader?.execute("BEGIN")
            #expect(try reader?.integer("SELECT count(*) FROM token") == 1)
            try store.store("two", bytes: 100)
        }
        let store = try WriterHarness(data.path)
        #expect(store.state.fault != nil)
        #expect(store.database.lastClockLook == 1_000)
        reader = nil
    }
}

@Suite struct DatabaseCopyTests {
    @Test("a copy has no journal of its own, as it is thrown away after an error")
    func journal() throws {
        let folder = try TemporaryDirectory()
        let source = try SQLiteConnection(path: folder.path + "/source", mode: .readWriteCreate)
        try source.execute("CREATE TABLE page (number, value); INSERT INTO page VALUES (1, zeroblob(100000))")
        let copy = folder.path + "/copy"
        #expect(FileManager.default.createFile(atPath: copy, contents: nil))
        var files: Set<String> = []
        do {
            let copying = try DatabaseCopy(of: source, to: copy)
            while try copying.step(pages: 5).remaining > 0 {
                files.formUnion(try FileManager.default.contentsOfDirectory(atPath: folder.path))
                try source.execute("UPDATE page SET number = number + 1")
            }
        }
        #expect(files == ["source", "copy"])
        let result = try SQLiteConnection(path: copy, mode: .readOnly).text("PRAGMA integrity_check")
        #expect(result == "ok")
        #expect(try SQLiteConnection(path: copy, mode: .readOnly).integer("SELECT number FROM page") > 1)
    }
}
