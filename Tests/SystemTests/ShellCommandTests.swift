import Foundation
import TestSupport
import Testing

@testable import System

struct ShellCommandTests {
    @Test(arguments: [
        ("exit 0", ShellCommand.Outcome.exited(status: 0)), ("exit 3", .exited(status: 3)),
        ("kill -TERM $$", .killed(signal: 15)), ("no-such-command 2> /dev/null", .exited(status: 127)),
    ])
    func `the outcome is the command's`(_ command: String, _ expected: ShellCommand.Outcome) throws {
        let outcome = try ShellCommand.run(command, arguments: [], environment: ["PATH": "/usr/bin:/bin"])
        #expect(outcome == expected)
    }

    @Test func `arguments and variables are data, whatever is in them`() throws {
        let folder = try TemporaryDirectory()
        let text = "a b'; touch \(folder.path)/injected; $(touch \(folder.path)/injected) \"`\n"
        let outcome = try ShellCommand.run(
            #"printf %s "$1" > "$PLACE/argument"; printf %s "$TEXT" > "$PLACE/variable""#, arguments: [text],
            environment: ["PATH": "/usr/bin:/bin", "PLACE": folder.path, "TEXT": text])
        #expect(outcome == .exited(status: 0))
        for name in ["argument", "variable"] {
            #expect(try String(contentsOfFile: folder.path + "/" + name, encoding: .utf8) == text)
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path).sorted() == ["argument", "variable"])
    }

    @Test func `a command ends by SIGPIPE as in a shell, even if this process ignores it`() throws {
        let command = "kill -PIPE $$; exit 0"
        #expect(try ShellCommand.run(command, arguments: [], environment: [:]) == .killed(signal: 13))
    }
}
