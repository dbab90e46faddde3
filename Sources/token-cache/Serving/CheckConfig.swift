import ArgumentParser
import Glibc
import Operations
import Server
import Settings
import System

/// The command `token-cache check-config`.
struct CheckConfig: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Check the settings and the files that they name, and print the settings in effect, without serving.",
        discussion: """
            It refuses what serve refuses: also certificates, keys and folders that are missing or that the server's \
            user cannot use, and addresses that exclude each other or that this machine does not have. Whether ports are free and the \
            store is sound is what token-cache doctor finds.

            As root, it tries everything with the rights of the user that the server runs as, if that user is known: that of \
            --user, of the running server, of the installed unit for the data folder, or else the owner of the data folder.

            EXAMPLES
              token-cache check-config --config token-cache.yaml
              token-cache check-config --config token-cache.yaml --syntax-only
            """
    )

    @OptionGroup var addresses: ListenOptions
    @OptionGroup var options: ConfigurationOptions

    @Flag(help: "Check only the settings themselves, such as those for another machine.")
    var syntaxOnly = false

    @OptionGroup var serverUser: ServerUserOptions

    func run() async throws {
        if let other = try serverUser.becomeOther() {
            try check(other)
        } else if !syntaxOnly, let user = try found(), OtherUsersProcess.isNeeded(user) {
            try check(inProcessOf: user)
        } else {
            try check(nil)
        }
    }

    /// - Parameter user: The server's user, whom this process has become; nil if it checks as whoever runs it.
    private func check(_ user: ServerUser?) throws {
        if let user, let refusal = options.config.flatMap({ user.settingsRefusal($0) }) {
            throw options.fault("\(refusal.text); \(refusal.advice)")
        }
        let settings = try options.load(listen: addresses.listen)
        do throws(StartError) {
            for remark in try StartCheck.check(settings, for: user, isSyntaxOnly: syntaxOnly) {
                StandardError.print(remark)
            }
        } catch {
            let status = options.fault("\(error)")
            if let user { StandardError.print("everything was tried with the rights of \(user.text)") }
            throw status
        }
        try StandardOutput.print(settings.listing)
    }

    /// The user that the server runs as; nil if that is not known.
    private func found() throws -> ServerUser? {
        do throws(ServerUser.Fault) {
            return try ServerUser.find(serverUser.user, options.loader(listen: addresses.listen))
        } catch {
            // Before a package is installed completely, there may be its unit and not yet its user.
            guard serverUser.user != nil else { return nil }
            throw options.fault("\(error)")
        }
    }

    /// Has a process of that user check, and passes on what it says.
    private func check(inProcessOf user: ServerUser) throws {
        let outcome: ChildProcess.Outcome
        do throws(OtherUsersProcess.Obstacle) {
            outcome = try OtherUsersProcess.run(user, serverUser.arguments)
        } catch {
            StandardError.print(
                "everything is tried as root, who may do more than \(user.account.name), as \(error.reason)")
            return try check(nil)
        }
        if outcome.status != EXIT_SUCCESS { throw ExitCode(outcome.status ?? EXIT_FAILURE) }
        try StandardOutput.write(outcome.output)
    }
}
