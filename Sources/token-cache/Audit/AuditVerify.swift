import ArgumentParser
import Audit

/// The command `token-cache audit verify`.
struct AuditVerify: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "verify", abstract: "Verify the audit log, and name the first line that was changed or removed.",
        discussion: """
            Needs no server and no settings: copy the log and verify it elsewhere. The exit status is 0 if all lines are as \
            they were written, 1 if not, and 2 if that cannot be told, because a file cannot be read or is compressed, the \
            files are given in the wrong order, or the head is before the first line.

            Lines that were cut off at the end leave no trace in the file itself: give the head that the metrics have shown.
            """
    )

    @Argument(
        help: "The files in the order in which they were written, the earliest first; - for standard input.",
        completion: .file())
    var files: [String]

    @Option(help: ArgumentHelp("The file with the first key.", valueName: "file"), completion: .file())
    var key: String

    @Option(
        help: ArgumentHelp(
            """
            The values of token_cache_audit_sequence and token_cache_audit_head at one time: the line has to be there, \
            with this MAC.
            """, valueName: "sequence:head"
        )
    )
    var head: HeadArgument?

    @OptionGroup var output: OutputOptions

    func run() async throws {
        let found: AuditVerification
        do throws(AuditError) {
            var verifier = try AuditVerifier(AuditFirstKey(contentsOf: key), head: head?.head)
            for file in files { try verifier.read(file == "-" ? "/dev/stdin" : file) }
            found = try verifier.finish()
            if found.fault != nil && !files.contains("-") { try FileOrder.check(files) }
        } catch {
            StandardError.print("\(error)")
            throw ExitCode(2)
        }
        try output.print(Report(found), Self.text(found))
        if !found.isSound { throw ExitCode.failure }
    }

    private static func text(_ found: AuditVerification) -> String {
        var lines = found.gaps.map { Text.visible("\($0)") }
        if let fault = found.fault { lines.append(Text.visible("\(fault)")) }
        if let range = found.lines {
            let which = "lines \(range.lowerBound) to \(range.upperBound)"
            let time = Text.visible(found.lastTime)
            lines.append(
                found.isSound
                    ? "\(which) are as they were written, the last at \(time); its head is \(found.headNumber)"
                    : """
                    the log was altered; \(which), up to \(time), were verified\(found.fault == nil ? "" : " before the first fault")
                    """)
            if range.lowerBound > 1 { lines.append("lines before \(range.lowerBound) are in earlier files") }
        } else if found.isSound {
            lines.append("there are no lines")
        }
        return lines.joined(separator: "\n")
    }

    /// What was found, as JSON.
    private struct Report: Encodable {
        struct Fault: Encodable {
            let file: String
            let line: Int
            let text: String
        }

        let isSound: Bool
        let first: UInt64?
        let last: UInt64?
        let lastTime: String
        let head: UInt64
        let gaps: [Fault]
        let fault: Fault?

        init(_ found: AuditVerification) {
            isSound = found.isSound
            (first, last) = (found.lines?.lowerBound, found.lines?.upperBound)
            (lastTime, head) = (found.lastTime, found.headNumber)
            gaps = found.gaps.map { Fault(file: $0.file, line: $0.line, text: "\($0)") }
            fault = found.fault.map { Fault(file: $0.file, line: $0.line, text: "\($0)") }
        }

        private enum CodingKeys: String, CodingKey {
            case isSound = "sound"
            case lastTime = "last_time"
            case first, last, head, gaps, fault
        }
    }
}

/// A head as an argument: `1234:98765432109876`.
struct HeadArgument: ExpressibleByArgument {
    let head: AuditVerifier.Head

    init?(argument: String) {
        let parts = argument.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count == 2, let sequence = UInt64(parts[0]), let number = UInt64(parts[1]) else { return nil }
        head = AuditVerifier.Head(sequence: sequence, number: number)
    }
}
