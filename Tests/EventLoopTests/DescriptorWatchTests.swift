import Glibc
import System
import Testing

@testable import EventLoop

@Suite struct DescriptorWatchTests {
    @Test func `a watched descriptor is announced until everything is read, and again later`() async throws {
        try await withLoop { loop in
            let bytes = try await loop.perform {
                let (reading, writing) = try socketPair()
                var received: [UInt8] = []
                // One byte a call, so that the second one has to be announced although nothing new has arrived.
                let watch = try DescriptorWatch(reading, on: loop) {
                    var byte: UInt8 = 0
                    if read(reading, &byte, 1) == 1 { received.append(byte) }
                }
                for (text, count) in [("ab", 2), ("c", 3)] {
                    _ = write(writing, text, text.utf8.count)
                    while received.count < count { await loop.sleep(until: .now + Nanoseconds(.milliseconds(1))) }
                }
                withExtendedLifetime(watch) {}
                close(writing)
                return received
            }
            #expect(bytes == Array("abc".utf8))
        }
    }
}
