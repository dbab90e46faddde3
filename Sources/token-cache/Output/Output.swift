import ArgumentParser
import Operations

/// What a command prints: for a person, or as JSON for a program.
struct OutputOptions: ParsableArguments {
    @Flag(name: .long, help: "Print JSON.")
    var json = false

    /// Prints one result.
    ///
    /// - Parameters:
    ///   - value: For JSON.
    ///   - text: For a person, without the last line end.
    func print(_ value: some Encodable, _ text: @autoclosure () -> String) throws {
        try StandardOutput.print(json ? try Self.text(value) : text())
    }

    static func text(_ value: some Encodable) throws -> String {
        String(decoding: try OperationsJSON.encode(value), as: UTF8.self)
    }
}
