import ArgumentParser
import Settings

/// The option for the addresses of clients.
struct ListenOptions: ParsableArguments {
    @Option(
        name: .long,
        help: ArgumentHelp(
            "Listen here; may be given several times. (default: \(Setting.listen.plainDefault))", valueName: "address"
        )
    )
    var listen: [String] = []
}
