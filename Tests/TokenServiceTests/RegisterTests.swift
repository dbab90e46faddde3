import HTTP
import SQLiteStore
import Synchronization
import TestSupport
import Testing
import TokenStore

@testable import TokenService

/// Each id is a register with one writer, whose values grow: a GET must give at least what was acknowledged, or given by
/// another GET, before it began.
@Suite struct RegisterTests {
    private final class Register: Sendable {
        struct State {
            /// Acknowledged, or given by a read that is over.
            var certain = 0
            /// Handed over to be written.
            var begun = 0
        }

        let state = Mutex(State())
    }

    /// Goes on until the last writer is done.
    private final class Course: Sendable {
        let writers: Atomic<Int>

        init(writers: Int) {
            self.writers = Atomic(writers)
        }

        var isOver: Bool { writers.load(ordering: .relaxed) == 0 }
    }

    private static let registers = 8
    private static let writes = 80

    @Test("reads and writes at once behave as if each happened at one moment", arguments: [true, false])
    func history(_ isCached: Bool) async throws {
        let folder = TemporaryDirectory()
        var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: folder.path))
        // Otherwise a write fails that a busy machine holds up for long.
        options.queueTime = .seconds(3_600)
        let store = try SQLiteTokenStore(
            in: try DataDirectory(path: folder.path, creates: true), options: options)
        let answers = AnswerCache(limit: isCached ? 1 << 20 : 0)
        store.report(writesTo: ServiceCaches(answers, SessionCache(limit: 0)))
        let administrator = try #require(store.administrator as? SQLiteAdministrator)
        let registers = (0..<Self.registers).map { _ in Register() }
        let course = Course(writers: Self.registers)
        try await withThrowingTaskGroup { group in
            for (index, register) in registers.enumerated() {
                group.addTask {
                    let service = try await ServiceActor.open(store, answers)
                    defer { course.writers.subtract(1, ordering: .relaxed) }
                    for value in 1...Self.writes {
                        register.state.withLock { $0.begun = value }
                        if value % 7 == 0 {
                            let token = Token(id: Array("id\(index)".utf8), info: Array("\(value)".utf8))
                            _ = try await administrator.handle.store([(token, nil)], keepsNewer: false)[0].get()
                        } else {
                            try await service.put("\(value)", under: "id\(index)")
                        }
                        register.state.withLock { $0.certain = max($0.certain, value) }
                        // Between writes there is time for readers to remember.
                        try await Task.sleep(for: .microseconds(Int.random(in: 0...4_000)))
                    }
                }
            }
            for _ in 0..<4 {
                group.addTask {
                    let service = try await ServiceActor.open(store, answers)
                    while !course.isOver {
                        let index = Int.random(in: 0..<Self.registers)
                        let register = registers[index]
                        let least = register.state.withLock(\.certain)
                        let value = Int(await service.get("id\(index)") ?? "0") ?? -1
                        let most = register.state.withLock { state in
                            state.certain = max(state.certain, value)
                            return state.begun
                        }
                        #expect(value >= least && value <= most, "id\(index): \(least)...\(most)")
                        if Bool.random() { await service.flush() }
                        // An actor that is free is entered without giving others their turn.
                        await Task.yield()
                    }
                }
            }
            // Rows that are sealed again hold what they held before.
            group.addTask {
                while !course.isOver {
                    _ = try await administrator.addKey()
                    _ = try await administrator.walk { _ in }
                    try await Task.sleep(for: .milliseconds(50))
                }
            }
            try await group.waitForAll()
        }
        let counts = answers.counts
        #expect((counts.hits > 0) == isCached)
        store.close()
    }
}
