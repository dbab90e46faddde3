import ArgumentParser

/// The flag of commands that know where to listen.
struct ListenOptions: ParsableArguments {
    @Option(
        name: .long,
        help: ArgumentHelp(
            "Listen here; may be given several times. (default: 127.0.0.1:8080)", valueName: "address"
        )
    )
    var listen: [String] = []
}
