internal import Glibc

/// Another run of this program, whose output is read.
package enum ChildProcess {
    /// What a process printed, and how it ended.
    package struct Outcome {
        package let output: [UInt8]
        /// Nil if a signal ended it.
        package let status: Int32?
    }

    /// Runs this program once more, without input and without this one's terminal, and waits for its end.
    ///
    /// - Parameters:
    ///   - arguments: Without the program's name.
    ///   - environment: All variables of the other run.
    ///   - limit: The most bytes of its output that are read.
    package static func run(
        _ arguments: [String], environment: [String: String], outputLimit limit: Int
    ) throws(SystemError) -> Outcome {
        var ends: [Int32] = [-1, -1]
        guard unsafe pipe(&ends) == 0 else { throw SystemError.last("pipe") }
        let reading = FileDescriptor(owning: ends[0])
        let process = try start(
            arguments, environment, output: FileDescriptor(owning: ends[1]), without: reading.number)
        let output: Result<[UInt8], SystemError> = Result { () throws(SystemError) in
            try BlockingIO.read(from: reading.number, limit: limit)
        }
        var state: Int32 = 0
        guard retryingInterrupts({ unsafe waitpid(process, &state, 0) }) == process else {
            throw SystemError.last("waitpid")
        }
        // The lower seven bits are the signal (wait(2), WIFEXITED).
        return Outcome(output: try output.get(), status: state & 0x7f == 0 ? (state >> 8) & 0xff : nil)
    }

    /// POSIX_SPAWN_SETSID, which Glibc's module lacks.
    private static let newSession: Int16 = 0x80

    private static func start(
        _ arguments: [String], _ environment: [String: String], output: consuming FileDescriptor, without other: Int32
    ) throws(SystemError) -> pid_t {
        var attributes = posix_spawnattr_t()
        unsafe posix_spawnattr_init(&attributes)
        defer { unsafe posix_spawnattr_destroy(&attributes) }
        // Otherwise a process with fewer rights could type into root's terminal (ioctl_tty(2), TIOCSTI).
        unsafe posix_spawnattr_setflags(&attributes, newSession)
        var actions = unsafe posix_spawn_file_actions_t()
        unsafe posix_spawn_file_actions_init(&actions)
        defer { unsafe posix_spawn_file_actions_destroy(&actions) }
        unsafe posix_spawn_file_actions_addclose(&actions, other)
        unsafe posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        unsafe posix_spawn_file_actions_adddup2(&actions, output.number, STDOUT_FILENO)
        unsafe posix_spawn_file_actions_addclose(&actions, output.number)
        let program = "/proc/self/exe"
        var pointers = unsafe ([program] + arguments).map { unsafe strdup($0) } + [nil]
        defer { for index in unsafe pointers.indices { unsafe free(pointers[index]) } }
        var variables = unsafe environment.map { unsafe strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for index in unsafe variables.indices { unsafe free(variables[index]) } }
        var process: pid_t = 0
        let code = unsafe posix_spawn(&process, program, &actions, &attributes, &pointers, &variables)
        guard code == 0 else { throw SystemError(call: "posix_spawn", code: code) }
        return process
    }
}
