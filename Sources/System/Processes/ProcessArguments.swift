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
