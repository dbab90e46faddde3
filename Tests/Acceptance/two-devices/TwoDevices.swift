import Foundation
import TokenCacheClient

/// A command line that plays an app on several devices, each with a folder for its local storage.
///
/// The login is made up: where a real app would ask the user, it invents a token.
@main enum TwoDevices {
    static let help = """
        usage: two-devices --device NAME [options] [command ...]

        options
          --server URL       the server; default http://127.0.0.1:8080/token.php
          --folder FOLDER    where the devices keep their tokens; default ./devices
          --user ID          the user's unique id; without it, the last one of switch-user, or one for the example
          --local            only the device's cache, as the guide's sample with kLocalCache = YES
          --remote           only the server, as with NO
          --session SECRET   a session of the server's API, sent in place of the id; @FILE reads it from a file
          --header FIELD     a header field in each request, as of a proxy: "Remote-User: anna"
          --patience SECONDS how long to wait for the server if there is another answer; default 2

        commands, in their order
          open               opens a session from the cached token; the default
          login              the same, and logs in if there is none
          token              prints the token of the open session
          refresh            obtains a new token
          reload             looks whether another device has changed something
          logout             signs out
          fetch              asks the cache without a session
          id                 the same, and prints the id of the login
          synchronize        sends what waits in the queue
          switch-user ID     goes on as this user, also at the next start
          write COUNT        stores COUNT tokens, each as soon as the one before is stored, and prints each
        """

    static func main() async {
        do {
            let arguments = CommandLine.arguments.dropFirst()
            guard !arguments.contains("--help") else {
                print(help)
                return
            }
            var device = try await Device(Arguments(arguments))
            try await device.run()
            end(0)
        } catch let error as Arguments.Failure {
            fail("\(error.description)\n\n\(help)", 2)
        } catch {
            fail("\(error)", 1)
        }
    }

    private static func fail(_ text: String, _ status: Int32) -> Never {
        FileHandle.standardError.write(Data("two-devices: \(text)\n".utf8))
        end(status)
    }

    /// Ends the process without its exit handlers: a request may be under way, and those of OpenSSL take its memory away on Linux.
    private static func end(_ status: Int32) -> Never {
        fflush(nil)
        _exit(status)
    }
}

/// What the command line says.
struct Arguments {
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    enum Caches {
        case local
        case remote
        case both
    }

    static let exampleUser = "5b0c6de9a1f24873905ec2ab7d41f836"

    var device = ""
    var server = "http://127.0.0.1:8080/token.php"
    var folder = "devices"
    var user: String?
    var caches = Caches.both
    var session: String?
    var header: (name: String, value: String)?
    var patience = 2.0
    var commands: [String] = []

    init(_ arguments: some Sequence<String>) throws {
        var rest = arguments.makeIterator()
        func value(of option: String) throws -> String {
            guard let value = rest.next() else { throw Failure(description: "\(option) needs a value") }
            return value
        }
        while let argument = rest.next() {
            switch argument {
            case "--device": device = try value(of: argument)
            case "--server": server = try value(of: argument)
            case "--folder": folder = try value(of: argument)
            case "--user": user = try value(of: argument)
            case "--local": caches = .local
            case "--remote": caches = .remote
            case "--session": session = try value(of: argument)
            case "--header":
                let parts = try value(of: argument).split(separator: ": ", maxSplits: 1).map(String.init)
                guard parts.count == 2 else { throw Failure(description: "--header needs a name and a value") }
                header = (parts[0], parts[1])
            case "--patience": patience = Double(try value(of: argument)) ?? patience
            case _ where argument.hasPrefix("-"): throw Failure(description: "there is no option \(argument)")
            default: commands.append(argument)
            }
        }
        guard !device.isEmpty, !device.contains("/") else { throw Failure(description: "--device needs a name") }
        if commands.isEmpty { commands = ["open"] }
    }
}
