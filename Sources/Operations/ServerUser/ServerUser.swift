internal import FoundationEssentials
internal import Glibc
package import Settings
package import System
internal import TokenStore

/// The user that the server runs as, whose rights decide whether it can start.
package struct ServerUser: Codable, Hashable, Sendable {
    /// How the user is known.
    enum Source: Codable, Hashable {
        case option
        case process(Int)
        case unit(String)
        case folder(String)
        case present
        /// It is not known: nobody was named, and this user may not see who owns the data folder.
        case unknown
    }

    package let account: UserAccount
    let source: Source
    /// Nil without an installed unit for the data folder.
    let service: ServiceSupport?
    /// A key ring in systemd's folders of credentials, which only root can look into.
    let keyRingCredential: String?

    /// Why it is not known which user to look as; says what to do.
    package struct Fault: Error, CustomStringConvertible {
        package let description: String
    }

    // MARK: - Finding it

    /// Finds the user that the server of a data folder runs as.
    ///
    /// That is the user of the option, else that of the running server, of the installed unit, or the owner of the data folder.
    ///
    /// - Parameters:
    ///   - name: The user that the operator names; nil for none.
    ///   - loader: Finds the settings as the server does.
    package static func find(_ name: String?, _ loader: SettingsLoader) throws(Fault) -> ServerUser {
        let settings = try? loader.load()
        let directory = settings?.dataDirectoryPath
        let folders = UnitFile.folders(ProcessInfo.processInfo.environment)
        let unit = ServerUnit.installed(in: folders)
            .first { $0.starts(directory: directory, settingsFile: loader.filePath) }
        let (account, source) = try account(name, directory, unit)
        return ServerUser(
            account: account, source: source, service: unit?.support,
            keyRingCredential: StoreCredential.path(in: StoreCredential.folders))
    }

    private static func account(
        _ name: String?, _ directory: String?, _ unit: ServerUnit?
    ) throws(Fault) -> (UserAccount, Source) {
        if let name {
            guard let account = UserAccount(name) else {
                throw Fault(description: "there is no user \(name); name the user that the server runs as with --user")
            }
            return (account, .option)
        }
        if let directory, let process = DataDirectory.holder(of: directory), isServer(process),
            let account = UserAccount(process: process), mayHold(account, directory)
        {
            return (account, .process(process))
        }
        if let unit {
            guard let account = unit.account(directory: directory) else {
                throw Fault(
                    description: """
                        there is no user \(unit.user), as which \(unit.path) starts the server; create that user, or correct \
                        User= in the unit; to look as another user, name it with --user
                        """
                )
            }
            return (account, .unit(unit.path))
        }
        guard let directory else { return (.present, .present) }
        do throws(SystemError) {
            let status = try FileStatus.read(directory)
            return (UserAccount(id: status.user, group: status.group), .folder(directory))
        } catch {
            return (.present, error.isPermissionDenied ? .unknown : .present)
        }
    }

    /// Whether a process is a server and not a command, which may have the folder locked as well.
    private static func isServer(_ process: Int) -> Bool {
        let words = (TextFile.contents(of: "/proc/\(process)/cmdline") ?? "").split(separator: "\0")
        return words.contains("serve")
    }

    /// Whether a process of this user can have locked the folder as its server does.
    ///
    /// Otherwise a process of any user that has come by the open file could choose the user that root's doctor becomes.
    private static func mayHold(_ account: UserAccount, _ directory: String) -> Bool {
        let file = "\(directory)/\(DataDirectory.lockName)"
        // Root gives the lock file that it creates to the folder's owner.
        return account.id == 0 || account.id == FileStatus(file, followingLinks: false)?.user
    }

    // MARK: - What this process can know

    /// Whether this process has the rights of that user, neither more nor less.
    package var isPresent: Bool { source != .unknown && account.id == geteuid() }

    /// The user and how it is known, for the report.
    package var text: String {
        switch source {
        case .option: "\(account.name), the user of --user"
        case .process(let number): "\(account.name), the user of the running server, process \(number)"
        case .unit(let path): "\(account.name), the user of \(path)"
        case .folder(let path): "\(account.name), the owner of \(path)"
        case .present: "\(account.name), the present user"
        case .unknown: "a user that \(account.name) may not find out"
        }
    }

    /// Whether systemd creates the folder that a path is in, or gives it to this user with everything in it, when it starts the
    /// service (systemd.exec(5), StateDirectory=), so that nothing can be tried there before.
    func awaitsFolder(of path: String) -> Bool {
        guard isPresent, let folder = service?.folder(of: path) else { return false }
        return FileStatus(folder).map { $0.user != account.id } ?? true
    }

    /// Whether a file is a credential, which systemd makes for the service and which is there only while it runs.
    func awaitsCredential(_ path: String) -> Bool {
        service?.opensCredentials == true && StoreCredential.isTransient(path)
    }
}
