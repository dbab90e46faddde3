import Testing

@testable import Operations

struct RecentCountsTests {
    @Test func `before a minute has gone by, the growth is since the first reading`() {
        var recent = RecentCounts([0, 7], at: 10.5)
        #expect(recent.growth(to: [50, 7], at: 10.6) == [50, 0])
        recent.add([50, 7], at: 11.5)
        #expect(recent.growth(to: [50, 8], at: 70.4) == [50, 1])
    }

    @Test func `what was more than a minute ago does not count any more`() {
        var recent = RecentCounts([0], at: 0.5)
        // Two each second.
        for second in 1...200 { recent.add([UInt64(second) * 2], at: Double(second) + 0.5) }
        #expect(recent.growth(to: [400], at: 200.5) == [120])
        // Half a second later nothing has come, and the second before the minute still counts whole.
        #expect(recent.growth(to: [400], at: 201) == [120])
        #expect(recent.growth(to: [400], at: 260.4) == [2])
        #expect(recent.growth(to: [400], at: 260.5) == [0])
    }

    @Test func `a process that was stopped for long counts what came since`() {
        var recent = RecentCounts([1], at: 0.5)
        recent.add([3], at: 1.5)
        #expect(recent.growth(to: [8], at: 3_601.2) == [5])
        recent.add([8], at: 3_601.5)
        #expect(recent.growth(to: [9], at: 3_602.2) == [6])
    }

    @Test func `a count that seems to shrink, as the loops are not read at the same instant, has not grown`() {
        let recent = RecentCounts([100], at: 0.5)
        #expect(recent.growth(to: [99], at: 1) == [0])
    }

    @Test func `a day of readings takes the room of a minute`() {
        var recent = RecentCounts([0], at: 0.5)
        for second in 1...86_400 { recent.add([UInt64(second)], at: Double(second) + 0.5) }
        #expect(recent.count <= RecentCounts.capacity)
        // Whatever the clock does.
        for step in 1...1_000 { recent.add([86_400], at: 86_401 + Double(step) / 100) }
        #expect(recent.count == RecentCounts.capacity)
    }
}
