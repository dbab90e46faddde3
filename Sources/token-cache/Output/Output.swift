import ArgumentParser
import Operations

/// The flag `--json`: whether a command prints its result as text or as JSON.
struct OutputOptions: ParsableArguments {
    @Flag(name: .long, help: "Print JSON.")
    var json = false

    /// Prints one result.
    ///
    /// - Parameters:
    ///   - value: The result, for JSON.
    ///   - text: The result as text, without the final newline.
    func print(_ value: some Encodable, _ text: @autoclosure () -> String) throws {
        try StandardOutput.print(json ? try Self.text(value) : text())
    }

    static func text(_ value: some Encodable) throws -> String {
        String(decoding: try OperationsJSON.encode(value), as: UTF8.self)
    }
}
