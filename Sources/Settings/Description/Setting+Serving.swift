extension Setting {
    /// Threads, paths and kinds of bodies.
    static let serving = [
        Setting(
            "loops", \.loops,
            .orWord(
                ["auto"], "a number from 1 to 256",
                { Quantities.number($0).flatMap { (1...256).contains($0) ? $0 : nil } }, { "\($0)" }
            ),
            takesEffect: .atStart,
            """
            The number of threads that serve; auto is one for each usable core. Fewer leave cores to a proxy on the same
            machine.
            """
        ),
        Setting(
            "paths", \.paths, .list("paths that begin with / and have no ?, # or blanks", path, { $0 }),
            "The paths that are served; all others get 404. Add the path that your clients have built in."
        ),
        Setting(
            "json_bodies", \.readsJSON, .onOff,
            """
            Whether POST bodies of type application/json are read: {"unique_id": "...", "token_info": "..." or {...}}.
            token.php ignores them; turn it on for clients of your own.
            """
        ),
    ]

    private static func path(_ text: String) -> String? {
        let isAllowed =
            text.hasPrefix("/") && text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && !"#?\"\\".utf8.contains($0) }
        return isAllowed ? text : nil
    }
}
