import ArgumentParser
import Operations
import Server
import System

/// The options of commands that try everything with the rights of the server's user.
struct ServerUserOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Check with the rights of this user, as whom the server runs.", valueName: "name"))
    var user: String?

    @Option(help: .private)
    var serverUser: String?

    /// The arguments of this command, without the program's name.
    var arguments: [String] { ProcessArguments.own ?? [] }

    /// In the process that looks with another user's rights: the user that this one has become; nil in any other process.
    ///
    /// Becomes that user first, for which this program is executed again.
    func becomeOther() throws -> ServerUser? {
        guard let text = serverUser else { return nil }
        guard let user = OtherUsersProcess.user(text) else {
            throw ValidationError("\(OtherUsersProcess.option) is only for the command itself; use --user")
        }
        guard !OtherUsersProcess.hasBecome(user) else { return user }
        try StandardOutput.print(OutputOptions.text(OtherUsersProcess.become(user, arguments)))
        throw ExitCode(OtherUsersProcess.obstacleStatus)
    }
}
