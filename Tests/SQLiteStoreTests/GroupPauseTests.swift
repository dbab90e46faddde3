import Testing

@testable import SQLiteStore

@Suite struct GroupPauseTests {
    @Test
    func `a write alone, or with a few others, is followed by no wait`() {
        for count in 0...3 { #expect(GroupPause(afterGroupOf: count, took: .milliseconds(10)) == nil) }
    }

    @Test(
        arguments: [
            (.microseconds(80), .microseconds(10)), (.milliseconds(8), .milliseconds(1)),
            (.milliseconds(40), .milliseconds(5)), (.seconds(60), .milliseconds(5)),
        ] as [(Duration, Duration)])
    func `the wait after a group is an eighth of its commit, and never long`(took: Duration, expected: Duration) {
        #expect(GroupPause(afterGroupOf: 4, took: took)?.duration == expected)
    }
}
