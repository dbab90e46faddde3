import Foundation
import FuzzTargets
import TestSupport
import Testing

/// The inputs that are kept, and mutations of them, without the fuzzer: what it has found once stays found.
@Suite(.serialized) struct CorpusTests {
    private static let folder = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .appending(path: "corpus")

    /// Its inputs by their files' names.
    private func inputs(of target: FuzzTarget) throws -> [(name: String, bytes: [UInt8])] {
        let folder = Self.folder.appending(path: target.name)
        return try FileManager.default.contentsOfDirectory(atPath: folder.path()).sorted().map { name in
            (name, [UInt8](try Data(contentsOf: folder.appending(path: name))))
        }
    }

    @Test(arguments: FuzzTarget.all)
    func `each input that is kept is treated as it should be`(_ target: FuzzTarget) throws {
        let inputs = try inputs(of: target)
        #expect(inputs.count >= 3)
        for (name, bytes) in inputs {
            do { try target.check(bytes) } catch { Issue.record("\(target.name)/\(name): \(error)") }
        }
    }

    @Test(arguments: FuzzTarget.all)
    func `mutations of the inputs that are kept are treated as they should be`(_ target: FuzzTarget) throws {
        let inputs = try inputs(of: target)
        var random = SeededGenerator(seed: 23)
        for number in 0..<target.mutationCount {
            let (name, bytes) = try #require(inputs.randomElement(using: &random))
            let mutated = Mutation.mutated(bytes, words: target.words, using: &random)
            do {
                try target.check(mutated)
            } catch {
                Issue.record(
                    "\(target.name), mutation \(number) of \(name), \(Data(mutated).base64EncodedString()): \(error)")
            }
        }
    }

    @Test func `tags are removed as PHP removes them`() throws {
        let found = try RecordedAnswers.checkTags(Self.folder.appending(path: "tags-of-php.jsonl").path())
        #expect(found.compared >= 300 && found.differences.isEmpty, "\(found.differences.prefix(3))")
    }

    @Test func `the sample store is one of this version`() throws {
        if ProcessInfo.processInfo.environment["WRITE_STORE"] != nil { try SampleStore.make() }
        let events = try SampleStore.eventsOfOpening()
        #expect(events.isEmpty, "\(events): WRITE_STORE=1 swift test --filter CorpusTests makes it again")
    }

    @Test func `every folder of inputs belongs to a target`() throws {
        let folders = try FileManager.default.contentsOfDirectory(atPath: Self.folder.path()).filter {
            !$0.contains(".")
        }
        #expect(folders.sorted() == FuzzTarget.all.map(\.name).sorted())
    }
}
