import TestSupport
import Testing

@testable import TokenStore

@Suite struct KeyRingChoiceTests {
    @Test func `processes that make a ring at the same path at once get the same one`() async throws {
        for _ in 0..<20 {
            let folder = try TemporaryDirectory()
            let file = KeyRingFile(path: folder.path + "/shared", credentials: nil, directory: folder.path)
            let outcomes = try await withThrowingTaskGroup(of: (identity: [UInt8], isNew: Bool).self) { group in
                for _ in 0..<8 {
                    group.addTask {
                        let chosen = try file.ring(fitting: [], isEmpty: true, isSealed: true, of: "")
                        return (chosen.identity, chosen.isNew)
                    }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            let kept = try #require(try file.load()).identity()
            #expect(outcomes.allSatisfy { $0.identity == kept })
            #expect(outcomes.count(where: \.isNew) == 1)
        }
    }

    @Test func `making a ring beforehand never replaces one that a server makes at the same moment`() async throws {
        for _ in 0..<50 {
            let folder = try TemporaryDirectory()
            let file = KeyRingFile(path: folder.path + "/shared", credentials: nil, directory: folder.path)
            let identities = try await withThrowingTaskGroup(of: [UInt8]?.self) { group in
                for _ in 0..<4 {
                    group.addTask {
                        try file.ring(fitting: [], isEmpty: true, isSealed: true, of: "").identity
                    }
                    group.addTask {
                        do throws(KeyRingError) {
                            try file.create()
                        } catch {
                            guard case .exists = error else { throw error }
                        }
                        return nil
                    }
                }
                var identities: [[UInt8]] = []
                for try await identity in group {
                    if let identity { identities.append(identity) }
                }
                return identities
            }
            let kept = try #require(try file.load()).identity()
            #expect(identities == [[UInt8]](repeating: kept, count: 4))
        }
    }
}
