internal import Logging

extension Setting {
    /// Logs, and the wait at a stop.
    static let logging = [
        Setting(
            "drain_timeout", \.drainTimeout, .duration(.zero ... .seconds(3_600)),
            "How long a stop (SIGTERM) waits for requests that have begun before it closes their connections."
        ),
        logLevel,
        Setting(
            "log_format", \.logFormat, .choice,
            """
            text for people, or json: one object a line, in the access log as well, for programs that collect logs.
            """
        ),
        Setting(
            "access_log", \.accessLog, .choice,
            """
            One line for each request: off for none, combined for the format of Apache and nginx, or json. Ids and token
            infos are never in it.
            """
        ),
        Setting(
            "access_log_file", \.accessLogFile, .text("the path of a file, or empty for standard output"),
            """
            The file of the access log; empty for standard output. Lines are appended, and SIGHUP opens the file anew, which
            is what logrotate needs.
            """
        ),
        Setting(
            "request_ids", \.hasRequestIDs, .onOff,
            """
            Whether each request has an id, in its log lines and as X-Request-Id in its answer. The id is the one that a
            trusted proxy sends (1 to 64 letters, digits, - _ .), otherwise a new one.
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
