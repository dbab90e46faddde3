import Glibc

/// The arguments of this process.
package enum ProcessArguments {
    /// Without the program's name, and nil in place of each that is not UTF-8; nil if /proc is not mounted.
    ///
    /// Not those of `CommandLine`, in which other characters take the place of what is not UTF-8: a command would be carried out for
    /// another user. It also has none if a preloaded library has moved the environment, as libfaketime does by setting a variable.
    package static let own: [String?]? = {
        // Each ends with a zero byte (proc(5)).
        guard let text = TextFile.head(of: "/proc/self/cmdline", count: .max) else { return nil }
        let all = text.split(separator: 0, omittingEmptySubsequences: false).dropLast()
        // If the program was started through the dynamic linker, the list begins with the linker's own arguments.
        let count = CommandLine.argc > 0 ? Int(CommandLine.argc) : all.count
        return all.suffix(max(0, count - 1)).map { String(validating: $0, as: UTF8.self) }
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

    /// Runs a command by system(3), which waits for it, and returns how it ended.
    ///
    /// The command's standard output goes to standard error, so that it does not mix with our own result.
    ///
    /// From then on, SIGTERM does not end this process: systemd sends the signal to both, and this process still has to note that the
    /// command was ended.
    ///
    /// - Parameters:
    ///   - command: The text that the shell interprets.
    ///   - name: A variable of the command.
    ///   - value: Its value, and that of `$1`, which the shell does not interpret.
    package static func run(_ command: String, with name: String, _ value: String) throws(SystemError) -> Outcome {
        let quoted = "'\(value.replacing("'", with: #"'\''"#))'"
        // Signals that this process ignores or blocks would be ignored or blocked there too.
        // A signal set of zeros is empty.
        var (none, blocked) = (sigset_t(), sigset_t())
        unsafe pthread_sigmask(SIG_SETMASK, &none, &blocked)
        let handler = signal(SIGPIPE, SIG_DFL)
        // A handler, which the command does not inherit, unlike SIG_IGN.
        _ = signal(SIGTERM) { _ in }
        let status = unsafe system("exec >&2\nexport \(name)=\(quoted)\nset -- \"$\(name)\"\n\(command)")
        let error = SystemError.last("system")
        _ = signal(SIGPIPE, handler)
        unsafe pthread_sigmask(SIG_SETMASK, &blocked, nil)
        guard status != -1 else { throw error }
        // WIFEXITED and the like (wait(2)) are macros, which Swift does not import.
        return status & 0x7f == 0 ? .exited(status: status >> 8 & 0xff) : .killed(signal: status & 0x7f)
    }
}
