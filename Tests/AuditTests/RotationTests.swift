import Glibc
import System
import Testing

@testable import Audit

@Suite struct RotationTests {
    @Test("the chain goes on in a new file after a rotation")
    func rotation() throws {
        let fixture = try LogFixture()
        let log = try fixture.open()
        try log.append([.stored])
        // A reload without a rotation.
        try log.reopen()
        try log.append([.stored])
        rename(fixture.path, fixture.path + ".1")
        try log.append([.stored])
        try log.reopen()
        try log.append([.stored])
        rename(fixture.path, fixture.path + ".2")
        fixture.pass(seconds: AuditLog.period)
        log.keepUp()
        try log.reopen()
        try log.append([.stored])
        log.close()
        let (first, second) = (fixture.path + ".1", fixture.path + ".2")
        let found = try fixture.verify(first, second, fixture.path)
        #expect(found.isSound && found.lines == 1...10)
        for path in [first, second, fixture.path] { #expect(try fixture.verify(path).isSound) }
        #expect(fixture.lines(second).first?.contains(#""action":"continue_log""#) == true)
        #expect(try fixture.verify(first, fixture.path).fault?.kind == .missing(5...7))
        #expect(try fixture.verify(second, first, fixture.path).fault?.line == 1)
        #expect(FileStatus(fixture.path)?.mode == 0o640)
    }

    @Test("a file with lines of its own does not continue the log, which stays where it is")
    func notEmpty() throws {
        let fixture = try LogFixture()
        let log = try fixture.open()
        rename(fixture.path, fixture.path + ".1")
        LogFixture.write("x\n", to: fixture.path)
        #expect(throws: AuditError.notEmpty(path: fixture.path)) { try log.reopen() }
        try log.append([.stored])
        #expect(fixture.lines(fixture.path + ".1").count == 2)
    }

    @Test("a file that was removed is noticed and followed by a new one")
    func removal() throws {
        let fixture = try LogFixture()
        let log = try fixture.open()
        try log.append([.stored])
        unlink(fixture.path)
        log.keepUp()
        #expect(fixture.takeNotices().count == 1)
        try log.append([.stored])
        let found = try fixture.verify()
        #expect(found.isSound && found.lines == 3...4)
    }

    @Test("while no new file can follow one that was removed, events are refused, and the operator is told why, once")
    func hinderedRemoval() throws {
        let fixture = try LogFixture()
        let log = try fixture.open()
        try log.append([.stored])
        let removed = try FileDescriptor(opening: fixture.path, O_RDONLY)
        unlink(fixture.path)
        #expect(mkdir(fixture.path, 0o700) == 0)
        for _ in 1...3 { log.keepUp() }
        // The new file may need its room.
        #expect(try FileStatus.read(removed.number).size == 0)
        let notices = fixture.takeNotices()
        try #require(notices.count == 2)
        #expect(notices[0].contains("was removed") && notices[1].contains(SystemError.reason(EISDIR)))
        #expect(throws: AuditError.self) { try log.append([.stored, .stored]) }
        #expect(log.figures.isFailing && fixture.takeNotices().isEmpty)
        rmdir(fixture.path)
        log.keepUp()
        #expect(fixture.takeNotices() == ["the audit log is written again; 2 events are not in it"])
        try log.append([.stored])
        #expect(!log.figures.isFailing)
        let found = try fixture.verify()
        #expect(found.isSound && found.lines == 3...5)
    }

    @Test("a file that was emptied goes on, and the verifier misses what was in it")
    func emptied() throws {
        let fixture = try LogFixture()
        let log = try fixture.open()
        try log.append([.stored])
        truncate(fixture.path, 0)
        try log.append([.stored])
        #expect(try fixture.verify().fault?.kind == .noAnchor)
    }
}
