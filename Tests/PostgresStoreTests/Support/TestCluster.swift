#if PostgreSQL
import Foundation
import System
import TokenStore

@testable import PostgresStore

/// A PostgreSQL server for tests, in a folder that is removed when it ends.
///
/// It is reached over a Unix socket, without a password. It ends with this object and with the process of the tests, however that
/// ends: a shell waits for the end of a pipe whose other end only this process has.
///
/// Any thread.
final class TestCluster: Sendable {
    /// Why there is no server; says what to do.
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    /// Contains its data and its socket.
    let folder: String
    /// The server runs as long as this is open.
    private let life: FileHandle

    private static let sharedResult = Result { try TestCluster() }

    /// The server that tests share, each with databases of its own.
    ///
    /// It is started when it is first asked for.
    static func shared() throws -> TestCluster { try sharedResult.get() }

    /// - Parameter settings: As in postgresql.conf; they override those of all tests.
    init(settings: [String: String] = [:]) throws {
        let programs = try Self.programs()
        // A disk in memory: with fsync on, which the store demands, making a database takes a second on other disks.
        let parent = FileManager.default.isWritableFile(atPath: "/dev/shm") ? "/dev/shm/" : NSTemporaryDirectory()
        folder = parent + "token-cache-test-\(UUID().uuidString.prefix(13))"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        var settings = Self.settings.merging(settings) { $1 }
        settings["unix_socket_directories"] = folder
        let values = settings.map { "-c '\($0.key)=\($0.value)'" }.joined(separator: " ")
        // PostgreSQL refuses to run as root.
        let asUser = geteuid() == 0 ? "setpriv --reuid postgres --regid postgres --init-groups --" : ""
        let script = """
            cd '\(folder)' || exit 1
            [ -z '\(asUser)' ] || chown postgres . || exit 1
            \(asUser) '\(programs)/initdb' -D data --no-sync -A trust -U postgres --locale=C --encoding=UTF8 > log 2>&1 || exit 1
            \(asUser) '\(programs)/postgres' -D data \(values) >> log 2>&1 < /dev/null &
            server=$!
            trap '' INT TERM HUP
            cat > /dev/null
            # Repeated, because a server that has just started ignores the signal. A server that a test has stopped must continue.
            (while kill -QUIT $server; do kill -CONT $server; sleep 0.1; done) &
            again=$!
            wait $server
            kill $again
            cd /
            rm -rf '\(folder)'
            """
        let pipe = Pipe()
        for end in [pipe.fileHandleForReading, pipe.fileHandleForWriting] {
            _ = fcntl(end.fileDescriptor, F_SETFD, FD_CLOEXEC)
        }
        let shell = Process()
        shell.executableURL = URL(filePath: "/bin/sh")
        shell.arguments = ["-c", script]
        shell.standardInput = pipe
        shell.standardOutput = FileHandle.nullDevice
        shell.standardError = FileHandle.nullDevice
        try shell.run()
        life = pipe.fileHandleForWriting
        try waitForStart(of: shell)
    }

    deinit {
        try? life.close()
    }

    private static let settings = [
        // Otherwise it estimates and locks tables at moments of its own.
        "autovacuum": "off", "listen_addresses": "", "max_connections": "300", "shared_buffers": "32MB",
        "max_wal_size": "256MB", "log_min_messages": "warning",
    ]

    /// The folder of the newest version's programs.
    private static func programs() throws -> String {
        let root = "/usr/lib/postgresql"
        let versions = (try? FileManager.default.contentsOfDirectory(atPath: root)) ?? []
        let folders = versions.compactMap(Int.init).sorted().map { "\(root)/\($0)/bin" }
        guard let newest = folders.last(where: { FileManager.default.isExecutableFile(atPath: $0 + "/initdb") }) else {
            throw Failure(
                description:
                    "there is no \(root)/*/bin/initdb: install Debian's package postgresql (apt-get install postgresql)"
            )
        }
        return newest
    }

    /// Waits until the server accepts connections.
    private func waitForStart(of shell: Process) throws {
        let deadline = MonotonicTime.now + Nanoseconds(.seconds(120))
        while true {
            do throws(PostgresError) {
                _ = try connection(to: "postgres")
                return
            } catch {
                guard shell.isRunning, MonotonicTime.now < deadline else {
                    let log = (try? String(contentsOfFile: folder + "/log", encoding: .utf8)) ?? "there is no log"
                    throw Failure(description: "PostgreSQL does not start (\(error)): \(log)")
                }
                usleep(10_000)
            }
        }
    }

    /// The id of the server's main process, to which tests send signals.
    func processID() throws -> Int32 {
        let text = try String(contentsOfFile: folder + "/data/postmaster.pid", encoding: .utf8)
        guard let number = text.split(separator: "\n").first.flatMap({ Int32($0) }) else {
            throw Failure(description: "postmaster.pid has no number")
        }
        return number
    }

    /// The `store.url` of one of its databases.
    func url(of database: String, user: String = "postgres") -> String {
        "postgresql://\(user)@/\(database)?host=\(folder.replacing("/", with: "%2F"))"
    }

    /// The settings of a store in one of its databases.
    func options(for database: String, user: String = "postgres") -> PostgresOptions {
        let host = DatabaseHost(name: folder, address: "", port: "")
        return PostgresOptions(
            url: url(of: database, user: user), hosts: [host], password: { nil }, connections: 2, timeout: .seconds(60),
            durability: .local)
    }

    func connection(to database: String, user: String = "postgres") throws(PostgresError) -> BlockingConnection {
        let options = options(for: database, user: user)
        return try BlockingConnection(
            options.parameters(for: options.hosts[0], unanswered: .seconds(10)), until: .now + Nanoseconds(.seconds(10))
        ).until(.now + Nanoseconds(.seconds(600)))
    }
}
#endif
