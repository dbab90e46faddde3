import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import System

@Suite struct NamedThreadTests {
    /// Call it in a process of its own, as the limit applies to the whole process, and not to root.
    private static func withoutThreads(_ body: () -> Void) {
        if geteuid() == 0 { precondition(setuid(65_534) == 0) }
        var limit = rlimit(rlim_cur: 0, rlim_max: 0)
        unsafe setrlimit(__rlimit_resource_t(__RLIMIT_NPROC.rawValue), &limit)
        body()
    }

    @Test func `a thread that cannot be started is an error`() async {
        await #expect(processExitsWith: .success) {
            NamedThreadTests.withoutThreads {
                guard (try? NamedThread.start("first") {}) == nil else { exit(1) }
            }
            exit(EXIT_SUCCESS)
        }
    }

    @Test func `a thread has its name`() throws {
        let name = Mutex("")
        let done = Atomic(false)
        try NamedThread.start("fifteen letters") {
            name.withLock { $0 = TextFile.contents(of: "/proc/thread-self/comm") ?? "" }
            done.store(true, ordering: .releasing)
        }
        while !done.load(ordering: .acquiring) { usleep(1_000) }
        #expect(name.withLock(\.self) == "fifteen letters\n")
    }

    @Test func `without a thread that it needs the process ends and says why`() async throws {
        let result = try await #require(
            processExitsWith: .exitCode(EXIT_FAILURE), observing: [\.standardErrorContent]
        ) {
            NamedThreadTests.withoutThreads { NamedThread.startOrExit("first") {} }
            exit(EXIT_SUCCESS)
        }
        let text = String(decoding: result.standardErrorContent, as: UTF8.self)
        #expect(text.contains("token-cache: no thread can be started") && text.contains("TasksMax="))
    }
}

// One after the other, as each changes for a moment how the whole process takes signals, and then changes it back.
@Suite(.serialized) struct ShellCommandTests {
    @Test(arguments: [
        ("exit 0", ShellCommand.Outcome.exited(status: 0)), ("exit 3", .exited(status: 3)),
        ("kill -TERM $$", .killed(signal: 15)), ("no-such-command 2> /dev/null", .exited(status: 127)),
    ])
    func `the outcome is the command's`(_ command: String, _ expected: ShellCommand.Outcome) throws {
        let outcome = try ShellCommand.run(command, with: "TEXT", "")
        #expect(outcome == expected)
    }

    @Test func `the argument and the variable are data, whatever is in them`() throws {
        let folder = TemporaryDirectory()
        let text = "a b'; touch \(folder.path)/injected; $(touch \(folder.path)/injected) \"`\n"
        let outcome = try ShellCommand.run(
            #"cd \#(folder.path); printf %s "$1" > argument; sh -c 'printf %s "$TEXT" > variable'"#, with: "TEXT", text)
        #expect(outcome == .exited(status: 0))
        for name in ["argument", "variable"] {
            #expect(try String(contentsOfFile: folder.path + "/" + name, encoding: .utf8) == text)
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path).sorted() == ["argument", "variable"])
    }

    @Test func `a command ends by SIGPIPE as in a shell, even if this process ignores it`() throws {
        let command = "kill -PIPE $$; exit 0"
        #expect(try ShellCommand.run(command, with: "TEXT", "") == .killed(signal: 13))
    }
}

/// Reads a limit of a process's control group from files below a folder that takes the place of `/sys/fs/cgroup`.
private func read<Value>(
    _ groups: String, _ files: [String: String], _ limit: (ControlGroup) -> Value?
) throws -> Value? {
    let folder = TemporaryDirectory()
    for (name, text) in files {
        let file = URL(fileURLWithPath: "\(folder.path)/\(name)")
        try FileManager.default.createDirectory(
            at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
        try text.write(to: file, atomically: false, encoding: .utf8)
    }
    return ControlGroup(groups, under: folder.path).flatMap(limit)
}

@Suite struct SystemMemoryTests {
    @Test(
        arguments: [
            ("0::/\n", ["memory.max": "max\n"], nil), ("0::/\n", ["memory.max": "1024\n"], 1024),
            ("0::/a/b\n", ["a/b/memory.max": "2048\n"], 2048),
            ("0::/a/b\n", ["a/memory.max": "1024\n", "a/b/memory.max": "max\n"], 1024),
            // A container whose path is not below its mount.
            ("0::/docker/1\n", ["memory.max": "4096\n"], 4096), ("0::/a\n", ["b/memory.max": "1\n"], nil),
            ("", [:], nil),
        ] as [(String, [String: String], Int?)]
    )
    func `the least memory limit of a process's own control group and its ancestors counts`(
        groups: String, files: [String: String], expected: Int?
    ) throws {
        #expect(try read(groups, files) { SystemMemory.limit($0) } == expected)
    }

    @Test
    func `there is some memory`() {
        #expect(SystemMemory.bytes > 0)
    }
}

@Suite struct ProcessorTests {
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
        #expect(try read(groups, files) { Processors.quota($0) } == expected)
    }

    @Test
    func `there is at least one core`() {
        #expect(Processors.usable >= 1)
    }
}
