import CSimulatedKernel
import Glibc
import Logging
import Settings

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
        let access = try AccessResources(Settings(), logger)
        simulation_begin()
        // Otherwise each copy of the process would begin with what Swift does only once, which takes longer than a seed.
        currentSeed = 0
        _ = World(seed: 0).run(access, logger)
        Trace.isPrinted = arguments.contains("--trace")
        var failures = 0
        for seed in numbers[0]..<numbers[0] + numbers[1] {
            currentSeed = seed
            let body = { World(seed: seed).run(access, logger) }
            guard let hash = apart(body) else {
                failures += 1
                continue
            }
            guard arguments.contains("--twice"), apart(body) != hash else { continue }
            failures += 1
            report("it does not do the same each time")
        }
        exit(failures == 0 ? 0 : 1)
    }

    /// Seconds after which a seed, which takes milliseconds, has to be ended.
    private static let longest: UInt32 = 30

    /// Calls a closure in a copy of the process.
    ///
    /// Each seed then finds the same heap, whatever ran before it: the capacity of an array depends on that, and the buffers that
    /// are counted on the capacity. And a seed that crashes leaves the others alone.
    ///
    /// - Returns: Its result; nil if it has ended the copy, which was then reported.
    private static func apart(_ body: () -> UInt64) -> UInt64? {
        var ends: [Int32] = [0, 0]
        guard pipe(&ends) == 0 else { preconditionFailure("the system has no pipe") }
        defer { for end in ends { Glibc.close(end) } }
        fflush(nil)
        let process = simulation_fork(longest)
        precondition(process >= 0, "the system has no room for a process")
        if process == 0 {
            var result = body()
            fflush(nil)
            Glibc.write(ends[1], &result, MemoryLayout<UInt64>.size)
            _exit(0)
        }
        var status: Int32 = 0
        waitpid(process, &status, 0)
        var result: UInt64 = 0
        if status == 0, Glibc.read(ends[0], &result, MemoryLayout<UInt64>.size) == MemoryLayout<UInt64>.size {
            return result
        }
        // After a violation, the copy has said what is wrong.
        if status & 0x7f != 0 { report(status & 0x7f == SIGALRM ? "the server hangs" : "the server crashes") }
        return nil
    }
}
