import CSimulatedKernel
import Glibc
import Logging
import Settings
import TestSupport

@testable import Server

/// Runs the server's loop and connections in a simulated world; see Tests/README.md.
///
///     simulation FIRST COUNT [--trace | --twice]
@main
enum Simulator {
    static func main() throws {
        let arguments = CommandLine.arguments.dropFirst()
        let numbers = arguments.compactMap { UInt64($0) }
        guard numbers.count == 2 else { preconditionFailure("Tests/Simulation/run gives two numbers") }
        let logger = Logger(label: "simulation") { _ in SwiftLogNoOpLogHandler() }
        let access = try AccessResources(Settings())
        simulation_begin()
        // Otherwise each copy of the process would begin with what Swift does only once, which takes longer than a seed.
        currentSeed = 0
        _ = World(seed: 0).run(access, logger)
        var failures = 0
        var seed = max(1, numbers[0])
        let end = numbers[0] + numbers[1]
        while seed < end {
            let seeds = (seed - 1) / group * group + 1..<min(end, (seed - 1) / group * group + 1 + group)
            let hash = inCopy(seeds, access, logger)
            if hash == nil { failures += 1 }
            if arguments.contains("--twice"), let hash, inCopy(seeds, access, logger) != hash {
                failures += 1
                currentSeed = seed
                report("it, or one of the next \(seeds.count), does not do the same each time")
            }
            seed = seeds.upperBound
        }
        exit(failures == 0 ? 0 : 1)
    }

    /// Seeds that run in one copy of the process: before a seed, those of its group always run, so that it does the same.
    private static let group: UInt64 = 10
    /// Seconds after which a copy, which takes milliseconds, has to be ended.
    private static let longest: UInt32 = 60

    /// Runs seeds in a copy of the process.
    ///
    /// They then find the same heap, whatever ran before: the capacity of an array depends on that, and the buffers that are
    /// counted on the capacity. And a seed that crashes ends only its copy.
    ///
    /// - Returns: A number that is the same each time; nil if something was wrong, which was then reported.
    private static func inCopy(_ seeds: Range<UInt64>, _ access: AccessResources, _ logger: Logger) -> UInt64? {
        var ends: [Int32] = [0, 0]
        guard pipe(&ends) == 0 else { preconditionFailure("the system has no pipe") }
        defer { Glibc.close(ends[0]) }
        fflush(nil)
        let process = simulation_fork(longest)
        precondition(process >= 0, "the system has no room for a process")
        if process == 0 {
            var hash: UInt64 = 0
            for seed in seeds {
                currentSeed = seed
                Trace.isPrinted = CommandLine.arguments.contains("--trace") && "\(seed)" == CommandLine.arguments[1]
                tell(seed, ends[1])
                hash = hash &* 31 ^ World(seed: seed).run(access, logger)
            }
            fflush(nil)
            tell(hash, ends[1])
            _exit(0)
        }
        Glibc.close(ends[1])
        var status: Int32 = 0
        waitpid(process, &status, 0)
        // The seeds that have begun, and the result.
        var told = [UInt64](repeating: 0, count: seeds.count + 1)
        let count = Glibc.read(ends[0], &told, told.count * MemoryLayout<UInt64>.size) / MemoryLayout<UInt64>.size
        if status == 0 { return told[seeds.count] }
        // After a violation, the copy has said what is wrong.
        if status & 0x7f != 0 {
            currentSeed = told[max(0, count - 1)]
            report(status & 0x7f == SIGALRM ? "the server hangs" : "the server crashes")
        }
        return nil
    }

    private static func tell(_ number: UInt64, _ descriptor: Int32) {
        var number = number
        Glibc.write(descriptor, &number, MemoryLayout<UInt64>.size)
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

/// What has happened in a seed: as a number that tells two runs apart, and as lines if wanted.
struct Trace {
    /// Whether the seed that runs is the one of `--trace`.
    nonisolated(unsafe) static var isPrinted = false

    private(set) var hash: UInt64 = 0xcbf2_9ce4_8422_2325

    mutating func note(_ event: StaticString, _ subject: Int, _ number: Int) {
        mix(UInt64(event.utf8CodeUnitCount))
        mix(UInt64(truncatingIfNeeded: subject))
        mix(UInt64(truncatingIfNeeded: number))
    }

    private mutating func mix(_ number: UInt64) {
        hash = (hash ^ number) &* 0x0000_0100_0000_01b3
        hash ^= hash >> 29
    }
}
