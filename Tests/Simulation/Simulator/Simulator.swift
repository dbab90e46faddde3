import CSimulatedKernel
import Glibc
import Logging
import Settings
import TestSupport

@testable import Server

/// Runs the server's loop and connections in a simulated world; see Tests/README.md.
///
///     simulation FIRST COUNT [--trace]
@main
enum Simulator {
    static func main() throws {
        let arguments = CommandLine.arguments.dropFirst()
        let numbers = arguments.compactMap { UInt64($0) }
        guard numbers.count == 2 else { preconditionFailure("Tests/Simulation/run gives two numbers") }
        let logger = Logger(label: "simulation") { _ in SwiftLogNoOpLogHandler() }
        let access = try AccessResources(Settings())
        simulation_begin()
        // What Swift initializes at its first use takes longer than a seed; copies of the process find it done.
        currentSeed = 0
        World(seed: 0).run(access, logger)
        var failures = 0
        var seed = max(1, numbers[0])
        let end = numbers[0] + numbers[1]
        while seed < end {
            let seeds = (seed - 1) / group * group + 1..<min(end, (seed - 1) / group * group + 1 + group)
            if !areSound(seeds, access, logger) { failures += 1 }
            seed = seeds.upperBound
        }
        exit(failures == 0 ? 0 : 1)
    }

    /// The number of seeds that run in one copy of the process.
    ///
    /// A seed always runs after the earlier ones of its group, because its run depends on them.
    private static let group: UInt64 = 10
    /// Seconds after which a copy, which takes milliseconds, has to be ended.
    private static let longest: UInt32 = 60

    /// Runs seeds in a copy of the process.
    ///
    /// They then find the same heap, whatever ran before: the capacities of arrays depend on it, and the bytes that the
    /// server counts for its buffers depend on these. A seed that crashes ends only its copy.
    ///
    /// - Returns: Whether nothing was wrong; what was wrong is already reported.
    private static func areSound(_ seeds: Range<UInt64>, _ access: AccessResources, _ logger: Logger) -> Bool {
        var ends: [Int32] = [0, 0]
        guard pipe(&ends) == 0 else { preconditionFailure("the system has no pipe") }
        defer { Glibc.close(ends[0]) }
        fflush(nil)
        let process = simulation_fork(longest)
        precondition(process >= 0, "the system has no room for a process")
        if process == 0 {
            for seed in seeds {
                currentSeed = seed
                isTraced = CommandLine.arguments.contains("--trace") && "\(seed)" == CommandLine.arguments[1]
                var begun = seed
                Glibc.write(ends[1], &begun, MemoryLayout<UInt64>.size)
                World(seed: seed).run(access, logger)
            }
            fflush(nil)
            _exit(0)
        }
        Glibc.close(ends[1])
        var status: Int32 = 0
        waitpid(process, &status, 0)
        // After a violation, the copy has said what is wrong.
        if status & 0x7f != 0 {
            var begun = [UInt64](repeating: 0, count: seeds.count)
            let count = Glibc.read(ends[0], &begun, begun.count * MemoryLayout<UInt64>.size) / MemoryLayout<UInt64>.size
            currentSeed = begun[max(0, count - 1)]
            report(status & 0x7f == SIGALRM ? "the server hangs" : "the server crashes")
        }
        return status == 0
    }
}

/// The choices of a seed; the same ones each time.
final class Randomness {
    private var generator: SeededGenerator

    init(seed: UInt64) {
        generator = SeededGenerator(seed: seed)
    }

    /// A number from 0 on, below a limit that is small beside 2^32.
    func below(_ limit: Int) -> Int {
        Int(((generator.next() >> 32) &* UInt64(limit)) >> 32)
    }

    func happens(oneIn count: Int) -> Bool { below(count) == 0 }

    func among<Value>(_ values: [Value]) -> Value { values[below(values.count)] }
}

/// Whether the seed that runs is the one of `--trace`.
nonisolated(unsafe) var isTraced = false
