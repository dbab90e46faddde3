import Glibc

/// Tells systemd's journal how serious a line on standard error is; without this, it takes every line for information.
package enum Journal {
    /// Whether standard error leads there: in a file or on a terminal, the mark would be text (systemd.exec(5), `JOURNAL_STREAM`).
    private static let isReader: Bool = {
        guard let stream = ProcessEnvironment.value(of: "JOURNAL_STREAM"),
            let identity = (try? FileStatus.read(STDERR_FILENO))?.identity
        else { return false }
        return stream == "\(identity.device):\(identity.number)"
    }()

    /// What has to precede a line of this priority of syslog(3), such as `<3>` (sd-daemon(3)); empty if nothing would remove it.
    package static func mark(_ priority: Int32) -> String { isReader ? "<\(priority)>" : "" }
}
