import Glibc
import TestSupport
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
        try NamedThread.start("writer") {
            try? BlockingIO.write(sent, to: writing)
            close(writing)
        }
        #expect(try BlockingIO.read(from: reading) == sent)
        close(reading)
    }

    @Test(arguments: [1_000, 200_000])
    func `a file is read into one buffer, as a secret in a former one would not be wiped`(_ count: Int) throws {
        let folder = TemporaryDirectory()
        let file = try FileDescriptor(opening: folder.path + "/file", O_RDWR | O_CREAT, mode: 0o600)
        try BlockingIO.write([UInt8](repeating: 7, count: count), to: file.number)
        let bytes = try BlockingIO.contents(ofFile: folder.path + "/file", limit: 1 << 20).bytes
        var buffer: [UInt8] = []
        buffer.reserveCapacity(max(1 << 16, count + 1))
        #expect(bytes.count == count && bytes.capacity == buffer.capacity)
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

    @Test func `bytes are written at a place of a file`() throws {
        let folder = TemporaryDirectory()
        let file = try FileDescriptor(opening: folder.path + "/file", O_RDWR | O_CREAT, mode: 0o600)
        try BlockingIO.write(Array("abcdef".utf8)[...], to: file.number, at: 0)
        try BlockingIO.write(Array("uvwxyz".utf8)[2..<4], to: file.number, at: 3)
        try BlockingIO.synchronizeData(file.number)
        try BlockingIO.truncate(file.number, to: 5)
        #expect(try BlockingIO.read(from: file.number, at: 0, count: 10) == Array("abcwx".utf8))
        #expect(throws: SystemError(call: "pwrite", code: EBADF)) { try BlockingIO.write([1], to: -1, at: 0) }
        #expect(throws: SystemError(call: "fsync", code: EBADF)) { try BlockingIO.synchronize(-1) }
        #expect(throws: SystemError(call: "ftruncate", code: EBADF)) { try BlockingIO.truncate(-1, to: 0) }
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
}
