internal import Glibc

/// The process that reads a named pipe, as far as this process may see.
///
/// Opening the pipe would tell, but closing it again would end it for its reader.
package enum PipeReader: Hashable, Sendable {
    case process(Int)
    /// No process has it open for reading. One that waits until there is a writer does not yet have it open (fifo(7)).
    case none
    /// This process may not look into all others.
    case unknown

    package static func find(_ path: String) -> PipeReader {
        guard let pipe = FileStatus(path)?.identity else { return .none }
        let resolved = Path.resolved(path)
        // The first process is hidden where those of other users are (proc(5), hidepid).
        var mayMiss = !FileStatus.exists("/proc/1")
        for process in (Folder.names(in: "/proc") ?? []).compactMap(Int.init) where process != getpid() {
            guard let descriptors = Folder.names(in: "/proc/\(process)/fd") else {
                // A process that has ended meanwhile reads nothing.
                mayMiss = mayMiss || errno == EACCES
                continue
            }
            let isReader = descriptors.contains { number in
                let link = "/proc/\(process)/fd/\(number)"
                // Other links are not followed: stat(2) does not return for a file on a network that does not answer.
                return FollowedPath.target(of: link) == resolved && FileStatus(link)?.identity == pipe
                    && isOpenForReading(number, of: process)
            }
            if isReader { return .process(process) }
        }
        return mayMiss ? .unknown : .none
    }

    /// By the flags of open(2), in octal digits (proc(5), `/proc/pid/fdinfo`).
    private static func isOpenForReading(_ descriptor: String, of process: Int) -> Bool {
        let lines = (TextFile.contents(of: "/proc/\(process)/fdinfo/\(descriptor)") ?? "").split(separator: "\n")
        guard let line = lines.first(where: { $0.hasPrefix("flags:") }),
            let flags = Int32(line.dropFirst("flags:".count).drop(while: \.isWhitespace), radix: 8)
        else { return false }
        return flags & O_ACCMODE != O_WRONLY
    }
}
