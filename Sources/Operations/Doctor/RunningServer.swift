import Glibc
import Server
import System
import TokenStore

/// Whether a server uses the data folder; finding out does not change anything.
enum RunningServer {
    case none
    case running(Status)
    /// A process uses the folder but does not answer; its id is nil if it cannot be determined.
    case silent(processID: Int?, reason: String)
    /// This user has no permission to find out.
    case hidden

    private static let topic = "Server"

    /// The part of the answer of `/status` that is read here.
    struct Status: Decodable {
        struct Process: Decodable {
            let id: Int
        }

        struct Warning: Decodable {
            let text: String
        }

        let process: Process
        let version: String
        let listeners: [String]
        let reasons: [String]
        let warnings: [Warning]
    }

    /// - Parameter directory: The data folder.
    init(directory: String) {
        let client = ServerClient(in: directory, timeoutInSeconds: ServerClient.shortTimeoutInSeconds)
        do {
            self = .running(try client.answer("GET", "/status"))
        } catch {
            let holder = DataDirectory.holder(of: directory)
            self =
                error.isRefusal
                ? .hidden
                : error.isAbsence && holder == nil ? .none : .silent(processID: holder, reason: error.besideProcess)
        }
    }

    func findings(version: String) -> [Finding] {
        switch self {
        case .none: return [.ok(Self.topic, "no server uses the data folder")]
        case .running(let status):
            let listeners = status.listeners.joined(separator: " ")
            let text = "process \(status.process.id) serves on \(listeners)"
            let finding: Finding =
                status.version == version
                ? .ok(Self.topic, text)
                : .warning(
                    Self.topic, "\(text), with version \(status.version)", "restart it to run version \(version)")
            let reasons = status.reasons.map { reason in
                Finding.problem(
                    Self.topic, "the server is not ready: \(reason)",
                    "remove the cause; the server then recovers by itself")
            }
            return [finding] + reasons + status.warnings.map { .warning(Self.topic, $0.text) }
        case .silent(let processID, let reason):
            let process = processID.map { "process \($0)" } ?? "another process"
            return [
                .problem(
                    Self.topic, "\(process) uses the data folder but does not answer on control.sock: \(reason)",
                    """
                    if it is a command, wait until it ends; otherwise run token-cache doctor as its user or root, and if that does not \
                    help, restart the server
                    """
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
