import ArgumentParser
import Settings

/// The option for the addresses of clients.
struct ListenOptions: ParsableArguments {
    @Option(
        name: .long,
        help: ArgumentHelp(
            "Listen on this address; may be repeated. (default: \(Setting.listen.plainDefault))", valueName: "address"
        )
    )
    var listen: [String] = []
}
