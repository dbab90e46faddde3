import ArgumentParser
import Audit
import Operations
import TokenStore

/// The command `token-cache keys`.
struct Keys: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Show and change the keys that seal tokens.",
        discussion: """
            One key seals (encrypts) tokens; all keys open (decrypt) them. To replace a key: keys add, rekey, keys retire. Where \
            servers share a PostgreSQL database, keys add makes a key that waits: copy the key ring to all servers, which need no \
            restart, and have it seal with keys use. Back up the key ring after each change.

            EXAMPLES
              token-cache keys list
              token-cache keys add && token-cache rekey
              # With PostgreSQL
              token-cache keys add
              token-cache keys use 2 && token-cache rekey
              # Backups from before still need the old key: keep a copy of the key ring that has it
              token-cache keys retire 1
            """,
        subcommands: [ListCommand.self, AddCommand.self, UseCommand.self, RetireCommand.self, KeysCreate.self],
        defaultSubcommand: ListCommand.self
    )

    /// The command `token-cache keys list`.
    struct ListCommand: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "list", abstract: "List the numbers of the keys, never the keys themselves."
        )

        @OptionGroup var options: StoreCommandOptions

        func run() async throws {
            let reply = try await options.withStore(for: nil) { try await $0.perform(ListKeys()) }
            let sealing = reply.keys.first(where: \.seals)?.number ?? .max
            let lines = reply.keys.map { key in
                let state = key.seals ? "  seals new tokens" : key.number > sealing ? "  waits for keys use" : ""
                return "\(key.number)  created \(Text.time(key.createdAt))  fingerprint \(key.fingerprint)\(state)"
            }
            let missing = (reply.missing ?? []).map {
                "\($0)  is missing, although tokens are sealed with it: put the key ring of that time back"
            }
            try options.output.print(reply, (missing + lines).joined(separator: "\n"))
        }
    }

    /// The command `token-cache keys add`.
    struct AddCommand: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "add",
            abstract: "Create a new key, which seals from now on, or waits for keys use in a PostgreSQL database."
        )

        @OptionGroup var options: StoreCommandOptions

        func run() async throws {
            let key = try await options.withStore(for: .addKey) { try await $0.perform(AddKey()) }
            try options.output.print(key, Self.text(key))
        }

        private static func text(_ key: SealingKey) -> String {
            guard !key.seals else {
                return """
                    key \(key.number) seals from now on; back up the key ring, \
                    and encrypt the stored tokens with it: token-cache rekey
                    """
            }
            return """
                key \(key.number) is in the key ring and waits; back up the key ring, copy it to all servers, and then have the key \
                seal: token-cache keys use \(key.number)
                """
        }
    }

    /// The command `token-cache keys use`.
    struct UseCommand: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "use",
            abstract: "Have a key of a PostgreSQL database seal from now on, on all servers.",
            discussion: """
                Servers without the key are not ready and store nothing until they have it: copy the key ring to them first. With \
                a store in a data folder the newest key seals, and this changes nothing.
                """
        )

        @Argument(help: "The key's number, as token-cache keys list shows it.")
        var number: Int

        @OptionGroup var options: StoreCommandOptions

        func run() async throws {
            let key = try await options.withStore(for: .useKey) { try await $0.perform(UseKey(number: number)) }
            try options.output.print(
                key, "key \(key.number) seals from now on; encrypt the stored tokens with it: token-cache rekey")
        }
    }

    /// The command `token-cache keys retire`.
    struct RetireCommand: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "retire",
            abstract: "Remove a key from the ring; refused while it seals, or a token is sealed with it.",
            discussion: """
                Backups that were made before the rekey need the key: copy the key ring first, under a name of its own, and \
                make a backup that does not need it.
                """
        )

        @Argument(help: "The key's number, as token-cache keys list shows it.")
        var number: Int

        @OptionGroup var options: StoreCommandOptions

        func run() async throws {
            let reply = try await options.withStore(for: .retireKey) {
                try await $0.perform(RetireKey(number: number))
            }
            try options.output.print(
                reply,
                """
                key \(reply.retired) seals nothing any more, and is gone from this key ring (with PostgreSQL, copy it to the other \
                servers); backups that were made before the rekey can be restored only with an earlier copy of the key ring
                """
            )
        }
    }
}

/// The command `token-cache rekey`.
struct Rekey: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Encrypt every token with the key that seals, even while a server runs.",
        discussion: "It may be interrupted at any point: all tokens stay readable, and the next run continues."
    )

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        let result = try await options.perform(RekeyStore(), for: .rekey, "Rekeying")
        var text =
            "\(Text.count(result.rekeyed, "token")) rekeyed, \(Text.count(result.tokens, "token")) checked"
        if result.unreadable > 0 {
            text +=
                "; \(Text.count(result.unreadable, "row")) cannot be opened and stayed as before, see token-cache verify"
        }
        try options.output.print(result, text)
        if result.unreadable > 0 { throw ExitCode.failure }
    }
}
