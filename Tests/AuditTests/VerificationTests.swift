import Cryptography
import TestSupport
import Testing

@testable import Audit

@Suite struct VerificationTests {
    /// A log of three periods: 1 start, 2...7 events and the first period's end, and so on.
    private func log() throws -> (LogFixture, [String]) {
        let fixture = try LogFixture()
        let log = try fixture.open()
        for _ in 0..<2 {
            for number in 0..<4 {
                try log.append([AuditEvent(.store, .ok, by: .apiKey("shop \(number)"), address: "192.0.2.\(number)")])
                fixture.pass(seconds: 1)
            }
            fixture.pass(seconds: AuditLog.period)
            log.keepUp()
        }
        try log.append([.stored, .stored])
        log.close()
        return (fixture, fixture.lines())
    }

    @Test("a log that nobody has touched is sound")
    func sound() throws {
        let (fixture, lines) = try log()
        let found = try fixture.verify()
        #expect(found.isSound && found.lines == 1...UInt64(lines.count))
        #expect(lines.filter { $0.contains("change_key") }.count == 2)
        #expect(lines.last?.contains(#""action":"close_log""#) == true)
    }

    @Test("a line that was removed is missed, at every place")
    func removal() throws {
        let (fixture, lines) = try log()
        for index in lines.indices.dropLast() {
            var altered = lines
            altered.remove(at: index)
            let fault = try fixture.verify(lines: altered).fault
            #expect(fault?.line == index + 1)
            if index > 0 { #expect(fault?.kind == .missing(UInt64(index + 1)...UInt64(index + 1))) }
        }
    }

    @Test("a line that was repeated is found, at every place")
    func duplication() throws {
        let (fixture, lines) = try log()
        for index in lines.indices {
            var altered = lines
            altered.insert(lines[index], at: index)
            let fault = try fixture.verify(lines: altered).fault
            #expect(fault?.line == index + 2)
            #expect(fault?.kind == .misplaced(expected: UInt64(index + 2)))
        }
    }

    @Test("forged numbers are refused before keys are made for them")
    func forgedNumbers() throws {
        let (fixture, lines) = try log()
        func fault(_ sequence: UInt64, _ period: UInt64, _ reason: String) throws -> AuditFault? {
            let forged = lines[0].replacing(
                #""sequence":1,"period":0,"#, with: #""sequence":\#(sequence),"period":\#(period),"#)
            return try fixture.verify(lines: lines[..<3] + [forged.replacing("new_chain", with: reason)]).fault
        }
        #expect(try fault(4, .max, "new_chain")?.kind == .malformed)
        #expect(try fault(.max, 0, "lines_missing")?.kind == .malformed)
        #expect(try fault(1 << 62, 0, "lines_missing")?.kind == .malformed)
        #expect(try fault(5, 3_999_999, "lines_missing")?.kind == .changed)
        let missing = "lines 4 to 4611686018427387902 are missing"
        #expect(try fault(1 << 62 - 1, 0, "new_chain")?.description.contains(missing) == true)
    }

    @Test("two lines that changed places are found, at all pairs of places")
    func reordering() throws {
        let (fixture, lines) = try log()
        for first in lines.indices {
            for second in lines.indices where second > first {
                var altered = lines
                altered.swapAt(first, second)
                #expect(try fixture.verify(lines: altered).fault?.line == first + 1)
            }
        }
    }

    @Test("a byte that was changed is found, at every place of every line")
    func change() throws {
        let (fixture, lines) = try log()
        for (index, line) in lines.enumerated() {
            for place in stride(from: index % 3, to: line.utf8.count, by: 3) {
                var bytes = Array(line.utf8)
                bytes[place] = bytes[place] == UInt8(ascii: "0") ? UInt8(ascii: "1") : UInt8(ascii: "0")
                var altered = lines
                altered[index] = String(decoding: bytes, as: UTF8.self)
                #expect(try fixture.verify(lines: altered).fault?.line == index + 1, "line \(index + 1), byte \(place)")
            }
        }
    }

    @Test("the lines of another key are not accepted")
    func otherKey() throws {
        let (fixture, _) = try log()
        var verifier = AuditVerifier(.random())
        try verifier.read(fixture.path)
        #expect(try verifier.finish().fault?.line == 1)
    }

    @Test("a tail that was cut off is found by a head from elsewhere, at every place")
    func cutTail() throws {
        let (fixture, lines) = try log()
        let whole = try fixture.verify()
        let head = AuditVerifier.Head(sequence: UInt64(lines.count), number: whole.headNumber)
        #expect(try fixture.verify(head: head).isSound)
        let path = fixture.directory.path + "/altered"
        for count in 0..<lines.count {
            LogFixture.write(lines[..<count].map { $0 + "\n" }.joined(), to: path)
            #expect(try fixture.verify(path).fault == nil)
            let fault = try fixture.verify(path, head: head).fault
            #expect(fault?.line == count && fault?.kind == .cutOff(head: head.sequence))
        }
        let other = AuditVerifier.Head(sequence: 3, number: 4)
        #expect(try fixture.verify(head: other).fault?.kind == .otherHead)
        // In the middle of a line no head is needed.
        LogFixture.write(String(lines.joined(separator: "\n").dropLast()), to: path)
        #expect(try fixture.verify(path).fault?.kind == .malformed)
        LogFixture.write(String(repeating: "x", count: 1 << 20), to: path)
        #expect(try fixture.verify(path).fault?.kind == .malformed)
    }

    @Test("whoever takes over the machine can only forge lines after the last period")
    func takenMachine() throws {
        let fixture = try LogFixture()
        let log = try fixture.open()
        try log.append([.stored, .stored])
        fixture.pass(seconds: AuditLog.period)
        log.keepUp()
        try log.append([.stored])
        fixture.pass(seconds: AuditLog.period)
        log.keepUp()
        try log.append([.stored])
        let lines = fixture.lines()
        // 1 start, 2 and 3 events, 4 end of period 0, 5 event, 6 end of period 1, 7 event.
        #expect(lines.count == 7)
        let stolen = try #require(try RunningKey(contentsOf: fixture.keyPath))
        #expect(stolen.chainKey.period == 2)
        for cut in 1..<6 {
            // The lines from the cut on are replaced by others that follow the chain, as far as the stolen key goes.
            let last = try #require(AuditLine(Array(lines[cut - 1].utf8)[...]))
            for period in 0...2 {
                var end = last.end
                end.period = UInt64(period)
                var encoder = LineEncoder(after: end, stolen.chainKey)
                var forged: [UInt8] = []
                encoder.append(.stored, at: 1_795_000_001_000_000, to: &forged)
                let altered = lines[..<cut] + [String(decoding: forged.dropLast(), as: UTF8.self)]
                #expect(try fixture.verify(lines: Array(altered)).fault?.line == cut + 1)
                // A gap that the server would have noted is a finding as well, with the lines that are gone.
                encoder = LineEncoder(after: stolen.end, stolen.chainKey)
                forged = []
                let event = LogEvent.opened(.linesMissing, removedBytes: 0)
                encoder.append(event, chain: stolen.chain, at: 1_795_000_001_000_000, to: &forged)
                let gap = lines[..<cut] + [String(decoding: forged.dropLast(), as: UTF8.self)]
                let found = try fixture.verify(lines: Array(gap))
                #expect(!found.isSound && found.gaps.map(\.lines) == [UInt64(cut + 1)...6])
            }
        }
    }
}
