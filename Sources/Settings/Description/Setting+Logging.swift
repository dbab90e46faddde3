import Logging

extension Setting {
    /// Logs, and the wait at a stop.
    static let logging = [
        Setting(
            "drain_timeout", \.drainTimeout, .duration(.zero ... .seconds(3_600)),
            "How long a stop (SIGTERM) waits for requests that have begun before it closes their connections."
        ),
        Setting(
            "drain_delay", \.drainDelay, .duration(.zero ... .seconds(3_600)),
            """
            How long a stop (SIGTERM) first goes on accepting connections, while GET /readyz already answers 503: longer than a load \
            balancer that does not retry takes to notice that.
            """
        ),
        logLevel,
        Setting(
            "log_format", \.logFormat, .choice,
            """
            The form of the log: text, or json (an object a line, also in the access log) for programs that collect logs.
            """
        ),
        Setting(
            "access_log", \.accessLog, .accessLog,
            """
            One line for each request on standard output: off for none, combined for the format of Apache and nginx, or json. The
            path of a file may follow, as in `json /var/log/token-cache/access.log`; SIGHUP or SIGUSR1 opens it anew, which is what
            logrotate needs. Ids and token infos are never in it.

            A line has the request's id, which the answer has as X-Request-Id: the one that a trusted proxy sent (1 to 64
            letters, digits, - _ . @), otherwise a new one.
            """
        ),
        Setting(
            "audit.file", \.audit.file, .file, takesEffect: .atStart,
            """
            The file of the audit log: a JSON line for each event, which nobody can change, remove or reorder unnoticed.
            Users and sessions appear as hashes. After a rotation, SIGHUP makes the server continue in a new file.

            `token-cache audit key FILE` makes the keys: FILE is kept elsewhere and verifies the log, with
            `token-cache audit verify`; the running key stays here and is replaced every 15 minutes.
            """
        ),
        Setting(
            "audit.key_file", \.audit.keyFile, .file, takesEffect: .atStart,
            """
            The running key of the audit log, in a folder that the server may write to; empty for a file in the data folder. Set
            it if the log outlives the data folder, for example on a volume of its own with store.url.
            """
        ),
        Setting(
            "audit.events", \.audit.events, .choice,
            "What is recorded: all, or changes, which is all except allowed reads."
        ),
        Setting(
            "audit.required", \.audit.isRequired, .onOff,
            """
            Whether a request fails if it cannot be recorded, for example because the disk is full. Otherwise it is answered,
            and the log says later how many events are not in it.
            """
        ),
    ]

    /// The level of the server's log.
    package static let logLevel = Setting(
        "log_level", \.logLevel, .choice, option: "--log-level",
        """
        The lowest level of the lines on standard error: trace, debug, info, notice, warning, error or critical. debug
        helps to find the cause of a problem.
        """
    )
}
