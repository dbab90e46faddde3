import Foundation
import TestSupport
import Testing

@testable import System

@Suite struct SystemMemoryTests {
    @Test(
        arguments: [
            ("0::/\n", ["memory.max": "max\n"], nil), ("0::/\n", ["memory.max": "1024\n"], 1024),
            ("0::/a/b\n", ["a/b/memory.max": "2048\n"], 2048),
            ("0::/a/b\n", ["a/memory.max": "1024\n", "a/b/memory.max": "max\n"], 1024),
            // A container whose path is not below its mount.
            ("0::/docker/1\n", ["memory.max": "4096\n"], 4096), ("0::/a\n", ["b/memory.max": "1\n"], nil),
            (
                "9:memory:/a\n0::/\n",
                ["memory/memory.limit_in_bytes": "9223372036854771712\n", "memory/a/memory.limit_in_bytes": "512\n"],
                512
            ),
            ("", [:], nil),
        ] as [(String, [String: String], Int?)]
    )
    func `the least memory limit of a process's own control group and its ancestors counts`(
        groups: String, files: [String: String], expected: Int?
    ) throws {
        let folder = try TemporaryDirectory()
        for (name, text) in files {
            let file = URL(fileURLWithPath: "\(folder.path)/\(name)")
            try FileManager.default.createDirectory(
                at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
            try text.write(to: file, atomically: false, encoding: .utf8)
        }
        #expect(SystemMemory.limit(ControlGroups(groups, under: folder.path)) == expected)
    }

    @Test
    func `there is some memory`() {
        #expect(SystemMemory.bytes > 0)
    }
}
