import Glibc

/// The seed that runs, for its report.
nonisolated(unsafe) var currentSeed: UInt64 = 0

/// Reports what the server has done wrong, with the command that repeats it, and ends the process.
///
/// The server's tasks and descriptors are in the middle of things, so that no further seed can run in this process.
func violation(_ text: String) -> Never {
    report(text)
    _exit(1)
}

/// Prints what is wrong with a seed.
func report(_ text: String) {
    print("Tests/Simulation/run --seed \(currentSeed): \(text)")
    fflush(nil)
}
