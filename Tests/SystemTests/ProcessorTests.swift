import Foundation
import TestSupport
import Testing

@testable import System

@Suite struct ProcessorTests {
    /// Writes files below a folder that takes the place of `/sys/fs/cgroup`, and returns the quota of a process.
    private func quota(_ groups: String, _ files: [String: String]) throws -> Double? {
        let folder = try TemporaryDirectory()
        for (name, text) in files {
            let file = URL(fileURLWithPath: "\(folder.path)/\(name)")
            try FileManager.default.createDirectory(
                at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
            try text.write(to: file, atomically: false, encoding: .utf8)
        }
        return ControlGroup(groups, under: folder.path).flatMap(Processors.quota)
    }

    @Test(
        arguments: [
            ("0::/\n", ["cpu.max": "max 100000\n"], nil), ("0::/\n", ["cpu.max": "150000 100000\n"], 1.5),
            // CPUQuota= of a service; the root of the hierarchy has no limit.
            ("0::/system.slice/a.service\n", ["system.slice/a.service/cpu.max": "50000 100000\n"], 0.5),
            (
                "0::/system.slice/a.service\n",
                ["system.slice/cpu.max": "200000 100000\n", "system.slice/a.service/cpu.max": "max 100000\n"], 2
            ),
            (
                "0::/a/b\n",
                ["cpu.max": "400000 100000\n", "a/cpu.max": "100000 100000\n", "a/b/cpu.max": "300000 100000\n"], 1
            ),
            // The quota of another service.
            ("0::/a/b\n", ["a/c/cpu.max": "100000 100000\n", "b/cpu.max": "100000 100000\n"], nil),
            ("0::/../../a\n", ["a/cpu.max": "100000 100000\n"], 1),
            ("0::/a:b\n", ["a:b/cpu.max": "100000 100000\n"], 1),
            ("0::/a\n", ["a/cpu.max": "1 0\n"], nil), ("0::/a\n", ["a/cpu.max": "x y\n"], nil), ("", [:], nil),
            ("nonsense\n0::/a\n", ["a/cpu.max": "100000 50000\n"], 2),
            // Version 1 does not count.
            (
                "4:cpuacct,cpu:/a\n0::/a\n",
                ["cpu/cpu.cfs_quota_us": "1\n", "cpu/cpu.cfs_period_us": "1\n", "a/cpu.max": "300000 100000\n"], 3
            ),
            ("3:cpuset:/a\n", ["a/cpu.max": "1 1\n"], nil),
        ] as [(String, [String: String], Double?)]
    )
    func `the least quota of a process's own control group and its ancestors counts`(
        groups: String, files: [String: String], expected: Double?
    ) throws {
        #expect(try quota(groups, files) == expected)
    }

    @Test
    func `there is at least one core`() {
        #expect(Processors.usable >= 1)
    }
}
