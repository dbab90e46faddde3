import Foundation
import System
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct PreloaderTests {
    private let folder = TemporaryDirectory()
    private let path: String
    private let events = Events()

    init() throws {
        path = folder.path + "/file"
    }

    /// A file of zeros that takes no room.
    private func makeFile(_ size: Int) throws {
        try Data().write(to: URL(filePath: path))
        try #require(truncate(path, size) == 0)
    }

    private func preload(memory: Int) async throws -> StoreEvent? {
        let preloader = Preloader(path: path, memory: memory) { [events] in events.add($0) }
        preloader.start()
        try await eventually { !events.all.isEmpty }
        preloader.stop()
        return events.all.first
    }

    @Test(
        "a file is read to its end, whatever its length",
        arguments: [0, 2, 65_535, 65_536, 65_537, 3 << 20, 10_000_001])
    func whole(size: Int) async throws {
        try makeFile(size)
        guard case .preloaded(size, _) = try await preload(memory: 2 * size) else {
            Issue.record("it was not read: \(events.all)")
            return
        }
    }

    @Test("a file is left alone that is larger than half of the memory")
    func tooLarge() async throws {
        try makeFile(1_000_000)
        #expect(try await preload(memory: 1_999_998) == .notPreloaded(bytes: 1_000_000, memory: 1_999_998))
    }

    @Test(
        "who stops it does not wait for the end of the file, nor for a file that is not there",
        arguments: [true, false])
    func stop(isThere: Bool) throws {
        if isThere { try makeFile(1 << 40) }
        let preloader = Preloader(path: path, memory: 1 << 41) { [events] in events.add($0) }
        preloader.start()
        preloader.stop()
        #expect(events.all.isEmpty)
    }
}
