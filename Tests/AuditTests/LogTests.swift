import Cryptography
import Glibc
import System
import TestSupport
import Testing

@testable import Audit

@Suite struct LogTests {
    @Test("a line has the documented fields, in this order")
    func fields() throws {
        let fixture = try LogFixture()
        let log = try fixture.open()
        let hasher = log.makeHasher()
        let user = hasher.pseudonym(.user, of: Array("alice".utf8).span)
        let session = hasher.pseudonym(.session, of: Array("alice".utf8).span)
        #expect(user != session && user.text.utf8.count == 22)
        try log.append([
            AuditEvent(
                .endSession, .denied("expired"), by: .user, user: user, session: session, address: "2001:db8::1",
                requestID: "a\"b\\\n\u{e9}"),
            AuditEvent(.read, .notFound, by: .none),
            AuditEvent(.erase, .preconditionFailed, by: .operator(uid: nil)),
            AuditEvent(.createSession, .ok, by: .apiKey("shop")),
            AuditEvent(.store, .failed, by: .user),
        ])
        let lines = fixture.lines()
        func start(_ sequence: Int) -> String {
            #"{"sequence":\#(sequence),"period":0,"time":"2026-11-18T11:06:40.123456Z","action":"#
        }
        #expect(
            lines[0].hasPrefix(
                start(1) + #""open_log","outcome":"ok","reason":"new_chain","actor":"server","chain":""#))
        #expect(
            lines[1].hasPrefix(
                start(2)
                    + #""end_session","outcome":"denied","reason":"expired","actor":"user","user_hash":"\#(user.text)","#
                    + #""session_hash":"\#(session.text)","address":"2001:db8::1","request_id":"a\"b\\???","mac":""#))
        #expect(lines[2].hasPrefix(start(3) + #""read_token","outcome":"not_found","actor":"none","mac":""#))
        #expect(
            lines[3].hasPrefix(start(4) + #""erase_user","outcome":"precondition_failed","actor":"operator","mac""#))
        #expect(
            lines[4].hasPrefix(
                start(5) + #""create_session","outcome":"ok","actor":"api_key","api_key":"shop","mac":""#))
        #expect(lines[5].hasPrefix(start(6) + #""store_token","outcome":"failed","actor":"user","mac":""#))
        #expect(try fixture.verify().isSound)
        #expect(log.figures.sequence == 6 && log.figures.lines == 6 && !log.figures.isFailing)
        #expect(try fixture.verify().headNumber == log.figures.headNumber)
    }

    @Test(
        "times are those of the calendar",
        arguments: [
            (0, "1970-01-01T00:00:00.000000Z"), (951_782_399_999_999, "2000-02-28T23:59:59.999999Z"),
            (951_782_400_000_001, "2000-02-29T00:00:00.000001Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
            (1_798_761_599_000_000, "2026-12-31T23:59:59.000000Z"),
        ])
    func times(microseconds: Int, text: String) {
        #expect(LineEncoder.time(Int64(microseconds)) == text)
    }

    @Test("the pseudonyms are those of the first key, in every period")
    func pseudonyms() throws {
        let fixture = try LogFixture()
        let log = try fixture.open()
        fixture.pass(seconds: AuditLog.period)
        log.keepUp()
        let identifier = Array("bob".utf8)
        let ofLog = log.makeHasher().pseudonym(.user, of: identifier.span)
        let ofKey = AuditHasher(fixture.firstKey.pseudonymKey()).pseudonym(.user, of: identifier.span)
        #expect(ofLog == ofKey)
    }

    @Test("the setting decides which events are recorded")
    func events() {
        for action in AuditEvent.Action.allCases {
            #expect(AuditEvents.all.includes(action, .ok))
            #expect(AuditEvents.changes.includes(action, .denied("unknown")))
        }
        for outcome in [AuditEvent.Outcome.ok, .notFound, .preconditionFailed, .failed] {
            let reads = AuditEvent.Action.allCases.filter { !AuditEvents.changes.includes($0, outcome) }
            #expect(reads == [.read, .list, .listSessions, .authenticate])
        }
    }

    @Test("the key is replaced every 15 minutes, at the end, and when the clock is set back")
    func keys() throws {
        let fixture = try LogFixture()
        func key() throws -> RunningKey { try #require(try RunningKey(contentsOf: fixture.keyPath)) }
        let log = try fixture.open()
        fixture.pass(seconds: AuditLog.period - 1)
        log.keepUp()
        #expect(try key().chainKey.period == 0)
        let first = try key().chainKey.key
        fixture.pass(seconds: 1)
        log.keepUp()
        #expect(try key().chainKey.period == 1 && key().end.sequence == 2)
        #expect(try !key().chainKey.key.hasBytes(of: first))
        fixture.pass(seconds: -10)
        log.keepUp()
        #expect(try key().chainKey.period == 2)
        log.close()
        #expect(try key().chainKey.period == 3)
        #expect(throws: AuditError.closed) { try log.append([.stored]) }
        #expect(FileStatus(fixture.keyPath)?.mode == 0o600)
        #expect(try fixture.verify().isSound)
        #expect(fixture.takeNotices().isEmpty)
    }

    @Test("a key that cannot be saved is reported once, and saved later")
    func unsavedKey() throws {
        let fixture = try LogFixture()
        let log = try fixture.open()
        // A folder in the place of the temporary file, which cannot be replaced by a file.
        mkdir(fixture.keyPath + ".new", 0o700)
        fixture.pass(seconds: AuditLog.period)
        log.keepUp()
        log.keepUp()
        #expect(fixture.takeNotices().count == 1)
        rmdir(fixture.keyPath + ".new")
        try log.append([.stored])
        log.keepUp()
        #expect(try RunningKey(contentsOf: fixture.keyPath)?.chainKey.period == 1)
        #expect(try fixture.verify().isSound)
    }
}
