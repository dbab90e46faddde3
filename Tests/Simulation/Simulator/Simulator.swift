import CSimulatedKernel
import Glibc
import Logging
import Settings

@testable import Server

/// Runs the server's loop and connections in a simulated world; see Tests/README.md.
///
///     simulation FIRST COUNT [--trace | --announce | --twice]
@main
enum Simulator {
    static func main() throws {
        let arguments = CommandLine.arguments.dropFirst()
        let numbers = arguments.compactMap { UInt64($0) }
        guard numbers.count == 2 else { preconditionFailure("Tests/Simulation/run gives two numbers") }
        let logger = Logger(label: "simulation") { _ in SwiftLogNoOpLogHandler() }
        let access = try AccessResources(Settings(), logger)
        Trace.isPrinted = arguments.contains("--trace")
        simulation_begin()
        var hash: UInt64 = 0
        for seed in numbers[0]..<numbers[0] + numbers[1] {
            currentSeed = seed
            if arguments.contains("--announce") {
                print(seed)
                fflush(nil)
            }
            let result = World(seed: seed).run(access, logger)
            if arguments.contains("--twice"), World(seed: seed).run(access, logger) != result {
                violation("the seed does not do the same each time")
            }
            hash = (hash ^ result) &* 0x0000_0100_0000_01b3
        }
        print("hash \(String(hash, radix: 16))")
    }
}
