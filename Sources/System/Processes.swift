import Glibc

/// The arguments of this process.
package enum ProcessArguments {
    /// Without the program's name; nil if /proc is not mounted.
    ///
    /// Swift finds them on the stack, next to the environment. It finds none if a preloaded library has already moved the environment
    /// elsewhere, as libfaketime does by setting a variable.
    package static let own: [String]? = {
        guard CommandLine.arguments.isEmpty else { return Array(CommandLine.arguments.dropFirst()) }
        // Each ends with a zero byte (proc(5)).
        return TextFile.head(of: "/proc/self/cmdline", count: .max)?
            .split(separator: 0, omittingEmptySubsequences: false).dropFirst().dropLast()
            .map { String(decoding: $0, as: UTF8.self) }
    }()
}

/// The environment of this process.
package enum ProcessEnvironment {
    /// A variable's value; nil if it is not set.
    package static func value(of name: String) -> String? {
        if let value = unsafe getenv(name) { unsafe String(cString: value) } else { nil }
    }
}

/// The names of this machine's users.
package enum UserName {
    /// The name of the user with an id; the id if there is no such name.
    package static func of(_ id: UInt32) -> String {
        unsafe getpwuid(id).map { unsafe String(cString: $0.pointee.pw_name) } ?? String(id)
    }

    /// The name of this process's user.
    package static var present: String { of(geteuid()) }
}

/// Runs a command of the operator's in a shell, and waits for it.
package enum ShellCommand {
    package enum Outcome: Hashable, Sendable {
        case exited(status: Int32)
        case killed(signal: Int32)
    }

    /// Runs a command in `/bin/sh` and returns how it ended.
    ///
    /// The command's standard output goes to standard error, so that it does not mix with our own result.
    ///
    /// - Parameters:
    ///   - command: The text that the shell interprets.
    ///   - arguments: The values of `$1` and so on, which the shell does not interpret.
    ///   - environment: All variables of the command.
    package static func run(
        _ command: String, arguments: [String], environment: [String: String]
    ) throws(SystemError) -> Outcome {
        var process: pid_t = 0
        let code = unsafe withAttributes { attributes, actions in
            unsafe withTexts(["/bin/sh", "-c", command, "sh"] + arguments) { arguments in
                unsafe withTexts(environment.map { "\($0.key)=\($0.value)" }) { variables in
                    unsafe posix_spawn(&process, "/bin/sh", &actions, &attributes, arguments, variables)
                }
            }
        }
        guard code == 0 else { throw SystemError(call: "posix_spawn", code: code) }
        var status: Int32 = 0
        guard retryingInterrupts({ unsafe waitpid(process, &status, 0) }) == process else {
            throw SystemError.last("waitpid")
        }
        // WIFEXITED and the like (wait(2)) are macros, which Swift does not import.
        return status & 0x7f == 0 ? .exited(status: status >> 8 & 0xff) : .killed(signal: status & 0x7f)
    }

    /// Calls `body` with what differs in the new process: its standard output and its signals.
    @unsafe private static func withAttributes(
        _ body: (inout posix_spawnattr_t, inout posix_spawn_file_actions_t) -> Int32
    ) -> Int32 {
        var attributes = posix_spawnattr_t()
        var actions = unsafe posix_spawn_file_actions_t()
        unsafe posix_spawnattr_init(&attributes)
        unsafe posix_spawn_file_actions_init(&actions)
        defer {
            unsafe posix_spawnattr_destroy(&attributes)
            unsafe posix_spawn_file_actions_destroy(&actions)
        }
        unsafe posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO)
        // Signals that this process ignores or blocks would be ignored or blocked there too.
        var signals = sigset_t()
        unsafe sigemptyset(&signals)
        unsafe posix_spawnattr_setsigmask(&attributes, &signals)
        unsafe sigaddset(&signals, SIGPIPE)
        unsafe posix_spawnattr_setsigdefault(&attributes, &signals)
        unsafe posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))
        return unsafe body(&attributes, &actions)
    }

    /// Calls `body` with the texts as C strings, followed by a null pointer.
    @unsafe private static func withTexts(
        _ texts: [String], _ body: ([UnsafeMutablePointer<CChar>?]) -> Int32
    ) -> Int32 {
        var copies = unsafe texts.map { unsafe strdup($0) }
        defer { for index in unsafe copies.indices { unsafe free(copies[index]) } }
        unsafe copies.append(nil)
        return unsafe body(copies)
    }
}
