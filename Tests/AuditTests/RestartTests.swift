import Cryptography
import Glibc
import System
import TestSupport
import Testing

@testable import Audit

/// Starts on files as crashes, power cuts, rotations and people leave them.
@Suite struct RestartTests {
    /// Records some events, and ends like a process that is killed.
    private func run(_ fixture: LogFixture, events: Int = 3) throws {
        let log = try fixture.open()
        for _ in 0..<events { try log.append([.stored]) }
    }

    @Test("the chain goes on after an orderly end and after a crash")
    func chain() throws {
        let fixture = try LogFixture()
        try run(fixture)
        try run(fixture)
        try fixture.open().close()
        try run(fixture)
        fixture.pass(seconds: 3 * AuditLog.period)
        try run(fixture)
        #expect(try fixture.verify().isSound)
        #expect(fixture.lines().filter { $0.contains(#""reason":"unaltered""#) }.count == 4)
        #expect(fixture.takeNotices().isEmpty)
    }

    @Test(
        "a saved end that no chain can have is ignored, as one that cannot be read is",
        arguments: [(UInt64.max, 0), (1 << 63, 0), (4, 1 << 40)] as [(UInt64, UInt64)])
    func impossibleHead(_ sequence: UInt64, _ period: UInt64) throws {
        let fixture = try LogFixture()
        try run(fixture)
        let mac = LogFixture.contents(fixture.keyPath + ".head").split(separator: " ").last ?? ""
        LogFixture.write("\(sequence) \(period) \(mac)", to: fixture.keyPath + ".head")
        try run(fixture)
        #expect(try fixture.verify().isSound)
        #expect(fixture.takeNotices().isEmpty)
    }

    @Test("an incomplete line at the end is cut off and noted, at every length")
    func tornLine() throws {
        let fixture = try LogFixture()
        try run(fixture)
        let (text, line) = (LogFixture.contents(fixture.path), try #require(fixture.lines().last))
        let keys = (LogFixture.contents(fixture.keyPath), LogFixture.contents(fixture.keyPath + ".head"))
        for length in stride(from: 1, through: line.utf8.count, by: 7) {
            LogFixture.write(text + line.prefix(length), to: fixture.path)
            LogFixture.write(keys.1, to: fixture.keyPath + ".head")
            _ = try fixture.open()
            #expect(fixture.takeNotices().count == 1)
            #expect(fixture.lines().last?.contains(#""removed_bytes":\#(length),"#) == true)
            #expect(try fixture.verify().isSound)
        }
        // Also if it is longer than what is read at once.
        LogFixture.write(text + String(repeating: "x", count: 3 << 20), to: fixture.path)
        LogFixture.write(keys.1, to: fixture.keyPath + ".head")
        _ = try fixture.open()
        #expect(fixture.lines().last?.contains(#""removed_bytes":3145728,"#) == true)
        #expect(try fixture.verify().isSound)
        // Also if there is nothing else.
        let other = try LogFixture()
        LogFixture.write(#"{"sequence":1,"per"#, to: other.path)
        _ = try other.open()
        #expect(try other.verify().isSound)
    }

    @Test("the end is found although the saved one and the key are older or lost, as after a power cut")
    func oldHead() throws {
        let fixture = try LogFixture()
        var heads: [String] = [""]
        var log: AuditLog? = try fixture.open()
        heads.append(LogFixture.contents(fixture.keyPath + ".head"))
        try log?.append([.stored])
        heads.append(LogFixture.contents(fixture.keyPath + ".head"))
        // The lines of two calls, between which the key has changed often without being saved.
        mkdir(fixture.keyPath + ".new", 0o700)
        for _ in 0...1_000 {
            fixture.pass(seconds: AuditLog.period)
            log?.keepUp()
        }
        heads.append(LogFixture.contents(fixture.keyPath + ".head"))
        try log?.append([.stored])
        log = nil
        rmdir(fixture.keyPath + ".new")
        let (text, key) = (LogFixture.contents(fixture.path), LogFixture.contents(fixture.keyPath))
        _ = fixture.takeNotices()
        for head in heads {
            LogFixture.write(text, to: fixture.path)
            LogFixture.write(head, to: fixture.keyPath + ".head")
            LogFixture.write(key, to: fixture.keyPath)
            try run(fixture)
            #expect(try fixture.verify().isSound, "\(head)")
            #expect(fixture.takeNotices().isEmpty)
        }
    }

    @Test("the chain goes on in a new file although the process was killed right behind the last line of a period")
    func killedAtPeriodEnd() throws {
        let fixture = try LogFixture()
        try run(fixture)
        do {
            let running = try #require(try RunningKey(contentsOf: fixture.keyPath))
            let file = try AuditFile(fixture.path)
            let headFile = try HeadFile(fixture.keyPath + ".head")
            let found = try LogEnd(of: file, running, saved: headFile.load())
            var writer = ChainWriter(file, running, headFile, after: found)
            try writer.write([], .keyChanged, at: 1_795_000_001_000_000)
        }
        rename(fixture.path, fixture.path + ".1")
        try run(fixture)
        #expect(try fixture.verify(fixture.path + ".1", fixture.path).isSound)
        #expect(fixture.takeNotices().count == 1)
    }

    @Test("a last line whose key would take too long to make is noted, although it is authentic", arguments: 0...1)
    func farPeriod(_ more: UInt64) throws {
        let fixture = try LogFixture()
        try run(fixture)
        let running = try #require(try RunningKey(contentsOf: fixture.keyPath))
        let key = running.chainKey.advanced(to: LogEnd.periodLimit + more)
        let end = ChainEnd(sequence: 2 * key.period, mac: running.end.mac, period: key.period)
        var encoder = LineEncoder(after: end, key)
        var line: [UInt8] = []
        encoder.append(.opened(.linesMissing, removedBytes: 0), chain: running.chain, at: 0, to: &line)
        LogFixture.write(LogFixture.contents(fixture.path) + String(decoding: line, as: UTF8.self), to: fixture.path)
        let log = try fixture.open()
        #expect(fixture.takeNotices().count == Int(more))
        #expect(log.figures.sequence == (more == 0 ? end.sequence + 2 : 5))
    }

    @Test("the end is found after a rotation and a power cut that has lost the saved end or new lines")
    func oldHeadAfterRotation() throws {
        for lines in 0...2 {
            let fixture = try LogFixture()
            var log: AuditLog? = try fixture.open()
            let (key, head) = (LogFixture.contents(fixture.keyPath), LogFixture.contents(fixture.keyPath + ".head"))
            try log?.append([.stored])
            rename(fixture.path, fixture.path + ".1")
            try log?.reopen()
            try log?.append([.stored])
            log = nil
            LogFixture.write(fixture.lines().prefix(lines).map { $0 + "\n" }.joined(), to: fixture.path)
            LogFixture.write(head, to: fixture.keyPath + ".head")
            // As if the power had failed before the key was saved, too.
            if lines == 1 { LogFixture.write(key, to: fixture.keyPath) }
            try run(fixture)
            #expect(try fixture.verify(fixture.path + ".1", fixture.path).isSound)
            #expect(fixture.takeNotices().count == (lines == 0 ? 1 : 0))
        }
    }

    @Test("lines that are missing at the end are noted by the start and by the verifier, at every place")
    func missingLines() throws {
        let fixture = try LogFixture()
        try run(fixture, events: 5)
        let (lines, head) = (fixture.lines(), LogFixture.contents(fixture.keyPath + ".head"))
        for count in 1..<6 {
            LogFixture.write(lines[..<count].map { $0 + "\n" }.joined(), to: fixture.path)
            LogFixture.write(head, to: fixture.keyPath + ".head")
            _ = try fixture.open()
            #expect(fixture.takeNotices().count == 1)
            // The line of the start is the end also if the saved one is lost.
            LogFixture.write("", to: fixture.keyPath + ".head")
            let log = try fixture.open()
            #expect(fixture.takeNotices().isEmpty)
            try log.append([.stored])
            let found = try fixture.verify()
            #expect(found.fault == nil && !found.isSound && found.lines == 1...9)
            #expect(found.gaps.map(\.lines) == [UInt64(count + 1)...6])
            // Without the note of the start it is an ordinary gap.
            var without = fixture.lines()
            without.remove(at: count)
            #expect(try fixture.verify(lines: without).fault?.line == count + 1)
        }
    }

    @Test("lines that are missing with the ends of their periods are named, and what follows them is verified")
    func missingPeriods() throws {
        let fixture = try LogFixture()
        for _ in 0..<3 {
            let log = try fixture.open()
            try log.append([.stored])
            log.close()
        }
        // Each start has three lines and a period.
        let (lines, keys) = (fixture.lines(), [fixture.keyPath, fixture.keyPath + ".head"].map(LogFixture.contents))
        for count in 1..<9 {
            LogFixture.write(lines[..<count].map { $0 + "\n" }.joined(), to: fixture.path)
            LogFixture.write(keys[0], to: fixture.keyPath)
            LogFixture.write(keys[1], to: fixture.keyPath + ".head")
            try fixture.open().close()
            let found = try fixture.verify()
            #expect(found.fault == nil && found.lines == 1...11)
            #expect(found.gaps.map(\.lines) == [UInt64(count + 1)...9])
        }
    }

    @Test("a last line that was changed or appended is noted by the start and found by the verifier")
    func changedLine() throws {
        let fixture = try LogFixture()
        try run(fixture)
        let (lines, head) = (fixture.lines(), LogFixture.contents(fixture.keyPath + ".head"))
        let changed = lines[3].replacing(#""ok""#, with: #""failed""#)
        func copy(_ sequence: UInt64, _ period: UInt64 = 0) -> String {
            lines[1].replacing(
                #""sequence":2,"period":0,"#, with: #""sequence":\(sequence),"period":\(period),"#)
        }
        let tails =
            [changed, changed.replacing(#""sequence":4"#, with: #""sequence":5"#), lines[2], "nonsense", copy(4)]
            .map { [$0] }
            + [lines[1], "nonsense", copy(5), copy(5, 1), copy(5, 3_999_999), copy(1 << 62 - 2)]
            .map { [lines[3], $0] }
        for tail in tails {
            for head in [head, ""] {
                LogFixture.write((lines[..<3] + tail).map { $0 + "\n" }.joined(), to: fixture.path)
                LogFixture.write(head, to: fixture.keyPath + ".head")
                try run(fixture)
                #expect(fixture.takeNotices().count == 1, "\(tail)")
                // The chain goes on from the end that is known, and not from the one that the line claims.
                let end = try #require(AuditLine(Array(fixture.lines().last?.utf8 ?? "".utf8)[...])?.end)
                #expect(end.sequence == (head.isEmpty ? 4 : 8) && end.period == 0)
                #expect(try fixture.verify().fault?.line == 3 + tail.count, "\(tail)")
            }
        }
    }

    @Test("a file that is missing is noted, and the chain goes on in a new one")
    func missingFile() throws {
        let fixture = try LogFixture()
        try run(fixture)
        rename(fixture.path, fixture.path + ".1")
        try run(fixture)
        #expect(fixture.takeNotices().count == 1)
        #expect(fixture.lines().first?.contains(#""reason":"new_file""#) == true)
        #expect(try fixture.verify(fixture.path + ".1", fixture.path).isSound)
        let alone = try fixture.verify(fixture.path)
        #expect(alone.isSound && alone.lines == 5...8)
        // Nobody has looked at a line before the first.
        let head = AuditVerifier.Head(sequence: 4, number: 1)
        #expect(throws: AuditError.headInEarlierFile(head: 4, first: 5)) {
            try fixture.verify(fixture.path, head: head)
        }
        // The other order, and one of them twice.
        #expect(try fixture.verify(fixture.path, fixture.path + ".1").fault?.line == 1)
        #expect(try fixture.verify(fixture.path, fixture.path).fault?.line == 1)
    }

    @Test("a start after a crash and a rotation may use numbers again, which the verifier explains")
    func numbersUsedAgain() throws {
        let fixture = try LogFixture()
        try run(fixture, events: 1)
        let head = LogFixture.contents(fixture.keyPath + ".head")
        try run(fixture)
        // The process was killed before it could save the end, and the file was renamed before the next start.
        LogFixture.write(head, to: fixture.keyPath + ".head")
        rename(fixture.path, fixture.path + ".1")
        try run(fixture)
        let fault = try fixture.verify(fixture.path + ".1", fixture.path).fault
        #expect(fault?.kind == .misplaced(expected: 7) && fault?.line == 1)
        #expect(fault?.description.contains("without the earlier ones") == true)
        #expect(try fixture.verify(fixture.path).isSound)
    }

    @Test("files that are not of this log are refused and left as they are")
    func foreignFiles() throws {
        let fixture = try LogFixture()
        for text in ["root:x:0:0\n", "no newline", "\n", #"{"time":"2026"}"# + "\n"] {
            LogFixture.write(text, to: fixture.path)
            #expect(throws: AuditError.foreign(path: fixture.path)) { try fixture.open() }
            #expect(LogFixture.contents(fixture.path) == text)
        }
        let other = try LogFixture()
        try run(other)
        LogFixture.write(LogFixture.contents(other.path), to: fixture.path)
        #expect(throws: AuditError.ofAnotherChain(path: fixture.path)) { try fixture.open() }
        for make in [{ mkdir($0, 0o700) }, { mkfifo($0, 0o600) }] as [(String) -> Int32] {
            remove(fixture.path)
            #expect(make(fixture.path) == 0)
            let text = #expect(throws: AuditError.self) { try fixture.open() }?.description
            #expect(text?.hasPrefix("\(fixture.path) cannot be used (") == true)
        }
    }

    @Test("two servers do not write to one file")
    func inUse() throws {
        let fixture = try LogFixture()
        let log = try fixture.open()
        #expect(throws: AuditError.inUse(path: fixture.path)) { try fixture.open() }
        try log.append([.stored])
        #expect(try fixture.verify().isSound)
    }

    @Test("keys that are missing, damaged, or readable by others are refused")
    func keys() throws {
        let fixture = try LogFixture()
        let text = LogFixture.contents(fixture.keyPath)
        chmod(fixture.keyPath, 0o640)
        #expect(throws: AuditError.keyFileMode(path: fixture.keyPath, mode: 0o640)) { try fixture.open() }
        chmod(fixture.keyPath, 0o600)
        for damaged in ["", String(text.dropLast(2)), text.replacing("period 0", with: "period x"), text + text] {
            LogFixture.write(damaged, to: fixture.keyPath)
            #expect(throws: AuditError.self) { try fixture.open() }
        }
        unlink(fixture.keyPath)
        #expect(throws: AuditError.noRunningKey(path: fixture.keyPath)) { try fixture.open() }
        let path = fixture.directory.path + "/first"
        try fixture.firstKey.save(to: path)
        #expect(throws: AuditError.keyFileExists(path: path)) { try fixture.firstKey.save(to: path) }
        #expect(try AuditFirstKey(contentsOf: path).chainName() == fixture.firstKey.chainName())
        #expect(FileStatus(path)?.mode == 0o600)
    }
}
