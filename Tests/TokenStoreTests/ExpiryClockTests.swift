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

    @Test("what clients were told has expired is not answered again after a stop of two days")
    func stop() {
        // It has expired half an hour after the last look that was stored, and the machine was switched off half an hour later.
        let deadline = Self.start + Self.hour / 2
        var before = ExpiryClock(saved: Self.start, at: reading(0))
        #expect(before.expiryTime(at: reading(Self.hour)) >= deadline && before.due(isExpiring: true) == nil)
        var clock = ExpiryClock(saved: Self.start, at: reading(60, off: 2 * Self.day))
        #expect(clock.holdsExpiry && clock.expiryTime(at: reading(120, off: 2 * Self.day)) >= deadline)
        // But a clock that is ahead by mistake hides nothing that expires later.
        #expect(clock.expiryTime(at: reading(120, off: 2 * Self.day)) <= Self.start + Self.hour + 120)
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
                #expect(clock.expiryTime(at: reading(look, off: 900 * Self.day)) == Self.start + look)
            }
            // What was written by the former clock has to be dated again first.
            #expect(clock.holdsExpiry && clock.misdated == Self.start..<reading(60, off: 900 * Self.day).wall)
            clock.accept()
            #expect(!clock.holdsExpiry && clock.misdated == nil)
            let next = reading(20 * Self.hour, off: 900 * Self.day)
            #expect(clock.expiryTime(at: next) == next.wall)
        }
    }

    @Test("each further jump begins the twelve hours anew")
    func furtherJumps() {
        var clock = ExpiryClock(saved: Self.start, at: reading(0))
        for jump in 1...5 {
            clock.look(at: reading(Int64(jump) * 11 * Self.hour, off: Int64(jump) * 10 * Self.day))
            #expect(clock.holdsExpiry)
        }
        clock.accept()
        #expect(clock.holdsExpiry)
        clock.look(at: reading(67 * Self.hour, off: 50 * Self.day))
        clock.accept()
        #expect(!clock.holdsExpiry)
    }

    @Test("a start more than a day from the last look counts as a jump, one without a last look does not")
    func start() {
        #expect(!ExpiryClock(saved: nil, at: reading(0)).holdsExpiry)
        for (stopped, isHeld) in [(0, false), (Self.day, false), (Self.day + 1, true), (-Self.day - 1, true)] {
            #expect(ExpiryClock(saved: Self.start - stopped, at: reading(0)).holdsExpiry == isHeld)
        }
        // How far back a start lies says nothing, unless its time was wrong for certain.
        for (saved, misdated) in [
            (Int64.min, 0..<Self.start), (0, 0..<Self.start), (Self.start - 90 * Self.day, nil), (.max, nil),
        ] as [(Int64, Range<Int64>?)] {
            var clock = ExpiryClock(saved: saved, at: reading(0))
            #expect(clock.holdsExpiry)
            clock.look(at: reading(12 * Self.hour))
            #expect(clock.misdated == misdated)
            clock.accept()
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

    @Test("what is written is never dated back by more than a day, and not at all once the clock is right")
    func timeOfWriting() {
        var clock = ExpiryClock(saved: Self.start, at: reading(0))
        // How far the clock is off, and how far the time is.
        let table = [
            (0, 0), (-400 * Self.day, 0), (-Self.day, -Self.day), (-2 * Self.day, 0), (0, 0),
            (400 * Self.day, 400 * Self.day),
            (0, 0), (-Self.hour, -Self.hour),
        ]
        for (minute, (off, expected)) in table.enumerated() {
            let now = Int64(minute) * 60
            var copy = clock
            #expect(copy.unixTime(at: reading(now, off: off)) == Self.start + now + expected, "\(off)")
            clock.look(at: reading(now))
        }
        // At a start the last look counts, unless the clock is ahead of it: the server may have been stopped for long.
        for (off, expected) in [(-400 * Self.day, 0), (30 * Self.day, 30 * Self.day)] {
            clock = ExpiryClock(saved: Self.start, at: reading(0, off: off))
            #expect(clock.unixTime(at: reading(60, off: off)) == Self.start + 60 + expected)
        }
        // Nobody has corrected it for twelve hours.
        clock = ExpiryClock(saved: Self.start, at: reading(0))
        for look in 1...721 { clock.look(at: reading(Int64(look) * 60, off: -400 * Self.day)) }
        #expect(clock.unixTime(at: reading(722 * 60, off: -400 * Self.day)) == Self.start + 722 * 60 - 400 * Self.day)
    }

    @Test("a clock that was wrong for a moment at the start has earlier rows not dated again after a later jump")
    func wrongAtStart() {
        var clock = ExpiryClock(saved: Self.start, at: reading(0, off: -300 * Self.day))
        clock.look(at: reading(60))
        #expect(!clock.holdsExpiry)
        // Ten days later the machine stands still for two days.
        for hours in [0, 12] as [Int64] {
            clock.look(at: reading(10 * Self.day + hours * Self.hour, off: 2 * Self.day))
        }
        #expect(clock.misdated?.lowerBound == Self.start)
    }
}
