internal import Glibc
internal import Server
internal import System
internal import TokenStore

/// Whether a server uses the data folder; finding out does not change anything.
enum RunningServer {
    case none
    case running(ServerFacts, warnings: [String])
    /// A process uses the folder but does not answer; nil if its id cannot be determined.
    case silent(processID: Int?, reason: String)
    /// This user has no permission to find out.
    case hidden

    private static let topic = "Server"

    /// What is read of `ServerStatus`.
    private struct Status: Decodable {
        struct Warning: Decodable {
            let text: String
        }
        let warnings: [Warning]
    }

    /// - Parameter directory: The data folder.
    init(directory: String) {
        let client = ServerClient(
            path: ControlSocketAddress.path(in: directory), timeoutInSeconds: HealthProbe.timeoutInSeconds
        )
        do throws(ServerClient.Failure) {
            let facts: ServerFacts = try client.answer("GET", ServerFacts.path)
            let status: Status? = try? client.answer("GET", "/status")
            self = .running(facts, warnings: status?.warnings.map(\.text) ?? [])
        } catch {
            let holder = DataDirectory.holder(of: directory)
            switch error {
            case .unreachable(_, EACCES), .unreachable(_, EPERM): self = .hidden
            case .unreachable(let reason, ENOENT), .unreachable(let reason, ECONNREFUSED),
                .unreachable(let reason, ENOTDIR), .unreachable(let reason, ENAMETOOLONG):
                self = holder.map { .silent(processID: $0, reason: reason) } ?? .none
            case .unreachable(let reason, _): self = .silent(processID: holder, reason: reason)
            case .noAnswer: self = .silent(processID: holder, reason: "no answer came")
            case .unreadable, .refused:
                self = .silent(processID: holder, reason: "its answer cannot be read; it may be another version")
            }
        }
    }

    var facts: ServerFacts? {
        if case .running(let facts, _) = self { facts } else { nil }
    }

    /// Whether certainly no server uses the folder.
    var isAbsent: Bool {
        if case .none = self { true } else { false }
    }

    func findings(version: String) -> [Finding] {
        switch self {
        case .none: return [.ok(Self.topic, "no server uses the data folder")]
        case .running(let facts, let warnings):
            let text = "process \(facts.processID) serves on \(facts.listeners.joined(separator: " "))"
            let finding: Finding =
                facts.version == version
                ? .ok(Self.topic, text)
                : .warning(
                    Self.topic, "\(text), with version \(facts.version)", "restart it to run version \(version)")
            return [finding] + warnings.map { .warning(Self.topic, $0) }
        case .silent(let processID, let reason):
            let process = processID.map { "process \($0)" } ?? "another process"
            return [
                .problem(
                    Self.topic, "\(process) uses the data folder but does not answer on control.sock: \(reason)",
                    "run token-cache doctor as its user or root; if that does not help, restart the server"
                )
            ]
        case .hidden:
            return [
                .warning(
                    Self.topic,
                    "\(UserName.present) may not connect to control.sock in the data folder, to ask its server",
                    "see the findings about the data folder; if no server runs, remove control.sock"
                )
            ]
        }
    }
}
