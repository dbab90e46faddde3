internal import FoundationEssentials
internal import Glibc
package import System

/// Runs a command in another process with the rights of the server's user, because only trying shows what that user may do.
///
/// Root may do everything, so root's own attempts show nothing. The other process runs this program again, which gives up root's
/// rights, executes itself once more, and does what the command is for.
package enum OtherUsersProcess {
    /// Names the user of the other process, in JSON; no option for operators.
    package static let option = "--server-user"
    /// The exit status of a process that could not become the user; its output is then an `Obstacle` (EX_OSERR of sysexits(3)).
    package static let obstacleStatus: Int32 = 71
    /// Far longer than any report.
    private static let longestOutput = 16 << 20

    /// Why there is no process with the rights of the user.
    package struct Obstacle: Error, Codable {
        package let reason: String
        /// What to do about it; nil where nothing has to be done.
        package let advice: String?
    }

    /// Whether this process has more rights than the server's user.
    package static func isNeeded(_ user: ServerUser) -> Bool { geteuid() == 0 && !hasBecome(user) }

    /// Whether this process already runs as the user that the other process is to become.
    package static func hasBecome(_ user: ServerUser) -> Bool { user.account.id == geteuid() }

    /// Runs the other process, whose errors go where those of this one go.
    ///
    /// - Parameters:
    ///   - user: The user that the server runs as.
    ///   - arguments: Those of the other process, without the program's name.
    package static func run(
        _ user: ServerUser, _ arguments: [String]
    ) throws(Obstacle) -> ChildProcess.Outcome {
        guard let text = try? OperationsJSON.encode(user) else {
            throw Obstacle(reason: "the user cannot be passed on", advice: nil)
        }
        let all = arguments + [option, String(decoding: text, as: UTF8.self)]
        let variables = ProcessInfo.processInfo.environment.filter { isPassedOn($0.key) }
        let outcome: ChildProcess.Outcome
        do throws(SystemError) {
            outcome = try ChildProcess.run(all, environment: variables, outputLimit: longestOutput)
        } catch {
            throw obstacle(error, user)
        }
        if outcome.status == obstacleStatus,
            let found = try? OperationsJSON.decode(Obstacle.self, from: Data(outcome.output))
        {
            throw found
        }
        return outcome
    }

    private static func obstacle(_ error: SystemError, _ user: ServerUser) -> Obstacle {
        let name = user.account.name
        switch (error.call, error.code) {
        case ("mount", EINVAL):
            // Its root folder is no mount point, so that it cannot have mounts of its own.
            return Obstacle(
                reason: "in this chroot the folders that systemd keeps for \(name) cannot be opened", advice: nil)
        case ("execv", EACCES):
            return Obstacle(
                reason: "\(name) may not run this program",
                advice: "install it where \(name) can run it, and run the command again")
        default:
            return Obstacle(
                reason: "no process of \(name) could be started (\(error))",
                advice: "run the command as \(name): runuser -u \(name) -- token-cache ...")
        }
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

    // MARK: - In the other process

    /// The user that this process was told to be; nil if the text is none.
    package static func user(_ text: String) -> ServerUser? {
        try? OperationsJSON.decode(ServerUser.self, from: Data(text.utf8))
    }

    /// Becomes the user and executes this program again; returns only if that fails, with what to print.
    package static func become(_ user: ServerUser, _ arguments: [String]) -> Obstacle {
        do throws(SystemError) {
            if user.service?.isDynamic == true { try UserRights.openPrivateFolders() }
            try UserRights.assume(user.account)
        } catch {
            return obstacle(error, user)
        }
        return obstacle(UserRights.executeAgain(arguments), user)
    }
}
