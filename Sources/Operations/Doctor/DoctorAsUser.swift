internal import FoundationEssentials
internal import Glibc
package import System

/// Runs the doctor in another process with the rights of the server's user, because only trying shows what that user may do.
///
/// Root may do everything, so root's own attempts show nothing. The other process runs this program again, which
/// gives up root's rights, executes itself once more, and prints its report as JSON.
package enum DoctorAsUser {
    /// Names the user of the other process, in JSON; no option for operators.
    package static let option = "--server-user"
    /// Far longer than any report.
    private static let longestReport = 16 << 20

    /// Whether this process has more rights than the server's user.
    package static func isNeeded(_ user: ServerUser) -> Bool { geteuid() == 0 && !hasBecome(user) }

    /// Whether this process already runs as the user that the other process is to become.
    package static func hasBecome(_ user: ServerUser) -> Bool { user.account.id == geteuid() }

    /// Runs the other process; nil if this program cannot be run as that user.
    ///
    /// - Parameters:
    ///   - user: The user that the server runs as.
    ///   - arguments: Those of this process, without the program's name.
    package static func report(_ user: ServerUser, _ arguments: [String]) -> DoctorReport? {
        guard let text = try? OperationsJSON.encode(user) else { return nil }
        let all = arguments.filter { $0 != "--json" } + ["--json", option, String(decoding: text, as: UTF8.self)]
        let variables = ProcessInfo.processInfo.environment.filter { isPassedOn($0.key) }
        guard let outcome = try? ChildProcess.run(all, environment: variables, outputLimit: longestReport) else {
            return nil
        }
        return try? OperationsJSON.decode(DoctorReport.self, from: Data(outcome.output))
    }

    /// Variables that decide what a server finds, and how this program runs.
    private static let passedOn: Set = [
        "PATH", "LANG", "LD_LIBRARY_PATH", "LIBDISPATCH_LOG", "CREDENTIALS_DIRECTORY", "KUBERNETES_SERVICE_HOST",
        "SYSTEMD_UNIT_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR",
    ]

    /// Whether a variable of root's environment is passed on; none that may hold a secret the server does not have itself.
    ///
    /// All processes of a user can read the environment of each other (proc(5), `/proc/pid/environ`).
    private static func isPassedOn(_ name: String) -> Bool {
        passedOn.contains(name)
            || ["LC_", "TOKEN_CACHE_", "PG"].contains { name.hasPrefix($0) } && name != "PGPASSWORD"
    }

    /// The finding in the place of a report.
    package static func failure(_ user: ServerUser) -> Finding {
        let name = user.account.name
        return .warning(
            "User", "this program could not be run as \(name), so that everything was tried as root, who may do more",
            "install it where \(name) can run it, and run the doctor again"
        )
    }

    /// The user that the other process was told to be; nil if the text is none.
    package static func user(_ text: String) -> ServerUser? {
        try? OperationsJSON.decode(ServerUser.self, from: Data(text.utf8))
    }

    /// In the other process: becomes the user and executes this program again; returns only if that fails.
    package static func become(_ user: ServerUser, _ arguments: [String]) -> SystemError {
        do throws(SystemError) {
            if user.service?.isDynamic == true { try UserRights.openPrivateFolders() }
            try UserRights.assume(user.account)
        } catch {
            return error
        }
        return UserRights.executeAgain(arguments)
    }
}
