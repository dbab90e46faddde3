import Glibc
import Synchronization
import Testing

@testable import System

@Suite struct BlockingIOTests {
    /// The ends of a new pipe.
    private func pipe() throws -> (reading: Int32, writing: Int32) {
        var ends: [Int32] = [0, 0]
        try #require(Glibc.pipe(&ends) == 0)
        return (ends[0], ends[1])
    }

    @Test(arguments: [false, true])
    func `more than a pipe holds arrives whole`(_ isNonBlocking: Bool) throws {
        let (reading, writing) = try pipe()
        let sent = (0..<1_000_000).map { UInt8(truncatingIfNeeded: $0) }
        if isNonBlocking { #expect(fcntl(writing, F_SETFL, O_NONBLOCK) == 0) }
        NamedThread.start("writer") {
            try? BlockingIO.write(sent, to: writing, waitsForRoom: isNonBlocking)
            close(writing)
        }
        #expect(try BlockingIO.read(from: reading) == sent)
        close(reading)
    }

    @Test func `a full pipe is an error for a writer that does not wait`() throws {
        let (reading, writing) = try pipe()
        #expect(fcntl(writing, F_SETFL, O_NONBLOCK) == 0)
        #expect(throws: SystemError(call: "write", code: EAGAIN)) {
            try BlockingIO.write([UInt8](repeating: 0, count: 1 << 20), to: writing)
        }
        close(writing)
        #expect(try BlockingIO.read(from: reading, limit: 3) == [0, 0, 0])
        close(reading)
    }

    @Test func `a part of a file ends with the file`() throws {
        let file = try FileDescriptor(opening: "/proc/self/exe", O_RDONLY)
        let size = try FileStatus.read(file.number).size
        #expect(try BlockingIO.read(from: file.number, at: 1, count: 3) == Array("ELF".utf8))
        #expect(try BlockingIO.read(from: file.number, at: size - 2, count: 10).count == 2)
        #expect(throws: SystemError(call: "pread", code: EBADF)) {
            _ = try BlockingIO.read(from: -1, at: 0, count: 1)
        }
    }

    @Test func `an interrupted call is repeated, any other result is returned`() {
        var results: [Int] = [-1, -1, 7]
        #expect(
            retryingInterrupts {
                errno = EINTR
                return results.removeFirst()
            } == 7)
        #expect(
            retryingInterrupts { () -> Int32 in
                errno = EAGAIN
                return -1
            } == -1)
    }

    @Test func `a thread has its name`() {
        let name = Mutex("")
        let done = Atomic(false)
        NamedThread.start("fifteen letters") {
            name.withLock { $0 = TextFile.contents(of: "/proc/thread-self/comm") ?? "" }
            done.store(true, ordering: .releasing)
        }
        while !done.load(ordering: .acquiring) { usleep(1_000) }
        #expect(name.withLock(\.self) == "fifteen letters\n")
    }
}
