import ArgumentParser
import Audit
import FoundationEssentials
import Operations
import Settings
import TokenStore

/// The command `token-cache keyring`.
struct Keyring: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "keyring",
        abstract: "Show and change the keys that encrypt tokens.",
        discussion: """
            One key of the ring seals (encrypts) tokens; all keys open (decrypt) them. keyring rotate replaces the key that seals. \
            Where servers share a PostgreSQL database, first make a key with keyring add, which does not seal yet, and copy the key \
            ring to all servers. Back up the key ring after each change.

            token-cache access keys makes the API keys of an app's server, token-cache audit key the keys of the audit log.

            EXAMPLES
              token-cache keyring list
              token-cache keyring rotate
            """,
        subcommands: [
            ListCommand.self, CreateCommand.self, RotateCommand.self, AddCommand.self, RetireCommand.self,
        ],
        defaultSubcommand: ListCommand.self
    )

    /// The command `token-cache keyring list`.
    struct ListCommand: StoreCommand {
        static let configuration = CommandConfiguration(
            commandName: "list", abstract: "List the numbers of the keys, never the keys themselves."
        )

        @OptionGroup var options: StoreCommandOptions

        func run() async throws {
            let reply = try await options.perform(ListKeys())
            let lines = reply.keys.map { key in
                let isWaiting = reply.waiting == key && reply.hasSealingKey
                let state = key.seals ? "  seals new tokens" : isWaiting ? "  waits for keyring rotate" : ""
                return "\(key.number)  created \(Text.time(key.createdAt))  fingerprint \(key.fingerprint)\(state)"
            }
            let missing = (reply.missing ?? []).map {
                "\($0)  is missing, although tokens are sealed with it: put the key ring of that time back"
            }
            let advice = reply.hasSealingKey ? [] : ["the key that seals is not among them; see token-cache doctor"]
            try options.output.print(reply, (missing + lines + advice).joined(separator: "\n"))
        }
    }

    /// The command `token-cache keyring create`.
    struct CreateCommand: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "create",
            abstract: "Make a key ring before the first start, for a secret or a credential.",
            discussion: """
                Needs no store. Without this command, the first start makes a key ring in the data folder. Keep a copy: without the \
                key ring the tokens are lost.

                EXAMPLES
                  token-cache keyring create /etc/credstore/token-cache.keys
                  token-cache keyring create - | systemd-creds encrypt - token-cache.keys
                """
        )

        @Argument(help: "The file to make, or - for standard output.", completion: .file())
        var file: String

        func run() async throws {
            if file == "-" {
                // The file's last line ends with the newline that printing adds.
                try StandardOutput.print(String(decoding: KeyRingFile.newText().dropLast(), as: UTF8.self))
            } else {
                let path = URL(filePath: file).standardizedFileURL.path
                try KeyRingFile(path: path, credentials: nil, directory: "").create()
            }
        }
    }

    /// The command `token-cache keyring rotate`.
    struct RotateCommand: StoreCommand {
        static let configuration = CommandConfiguration(
            commandName: "rotate",
            abstract: "Replace the key: a new one seals, every token is encrypted with it, and the old one is retired.",
            discussion: """
                A server may run meanwhile, but no other rotation. If this is interrupted, all tokens stay readable, the server \
                encrypts the rest within a day, and the next run retires the key.

                Earlier backups need the old key: the old key ring is kept beside the new one, with .retired-, the key's number \
                and its fingerprint behind its name. Remove it together with the last of these backups.

                With store.url, this takes the key that keyring add has made. Servers that lack it are not ready and store nothing \
                until they have it, so copy the key ring to all of them first, and again afterwards.
                """
        )

        @OptionGroup var options: StoreCommandOptions

        func run() async throws {
            let isShared = try !options.load().store.url.isEmpty
            let rotation = try await options.withStore(for: .rekey) { store in
                let former = try await store.perform(ListKeys()).keys.first(where: \.seals)?.number
                let key = try await sealingKey(store, isShared: isShared)
                let bar = ProgressBar("Encrypting")
                defer { bar.finish() }
                var rotation = Rotation(
                    key: key.number, isNew: key.number != former,
                    report: try await store.perform(WalkStore()) { bar.show($0) })
                for old in try await store.perform(ListKeys()).keys where old.number < key.number {
                    let request = RetireKey(number: old.number)
                    do {
                        rotation.retired.append(try await store.perform(request).retired)
                    } catch {
                        // A busy server may have sealed a token before it had the new key, and stored it after the first pass
                        // had gone by.
                        _ = try? await store.perform(WalkStore()) { bar.show($0) }
                        rotation.retired.append(try await store.perform(request).retired)
                    }
                }
                return rotation
            }
            try options.output.print(rotation, rotation.text)
        }

        /// Makes the newest key the one that seals, after adding a key if there is only one.
        ///
        /// If there are more, the newest was added before, or the last rotation was interrupted.
        private func sealingKey(_ store: StoreAccess, isShared: Bool) async throws -> SealingKey {
            let found = try await store.perform(ListKeys())
            if let waiting = found.waiting { return try await store.perform(UseKey(number: waiting.number)) }
            if found.keys.count > 1, let sealing = found.keys.first(where: \.seals) { return sealing }
            guard !isShared else {
                throw CommandFailure(
                    """
                    the database may have several servers, which need the new key before it seals: make it with token-cache keyring \
                    add, copy the key ring to all servers, and then run this
                    """
                )
            }
            return try await store.perform(AddKey())
        }
    }

    /// What a rotation has done.
    private struct Rotation: Encodable {
        let key: Int
        /// Whether the key did not seal before this run.
        let isNew: Bool
        let tokens: Int
        let rekeyed: Int
        let unreadable: Int
        var retired: [Int] = []

        init(key: Int, isNew: Bool, report: WalkReport) {
            (self.key, self.isNew, tokens) = (key, isNew, report.tokens)
            (rekeyed, unreadable) = (report.rekeyed, report.unreadableCount)
        }

        var text: String {
            var lines = [
                """
                key \(key) seals\(isNew ? " from now on" : ", as it did before"); \(Text.count(tokens, "token")) checked, \
                all\(unreadable == 0 ? "" : " that open") encrypted with it
                """
            ]
            if !isNew {
                lines.append(
                    "this key had been made before; to replace it as well, run token-cache keyring rotate once more"
                )
            }
            lines += retired.map {
                """
                key \($0) is retired; for earlier backups, the key ring as it was is kept with .retired-\($0) and the key's fingerprint \
                behind its name: it has the present key as well, so keep it as safe as the key ring
                """
            }
            if unreadable > 0 {
                lines.append(
                    """
                    \(Text.count(unreadable, "row")) cannot be opened and stayed as before; token-cache verify names them
                    """)
            }
            return (lines + ["back up the key ring"]).joined(separator: "\n")
        }
    }

    /// The command `token-cache keyring add`.
    struct AddCommand: StoreCommand {
        static let configuration = CommandConfiguration(
            commandName: "add",
            abstract: "Make a key for a PostgreSQL database, which seals only after keyring rotate.",
            discussion: "In a data folder, which only one server can use, the key seals at once."
        )

        @OptionGroup var options: StoreCommandOptions

        func run() async throws {
            let key = try await options.perform(AddKey())
            let text =
                key.seals
                ? "seals from now on; back up the key ring, and encrypt the stored tokens with it: token-cache keyring rotate"
                : """
                is in the key ring and waits; back up the key ring, copy it to all servers, and then have the key seal: \
                token-cache keyring rotate
                """
            try options.output.print(key, "key \(key.number) \(text)")
        }
    }

    /// The command `token-cache keyring retire`.
    struct RetireCommand: StoreCommand {
        static let configuration = CommandConfiguration(
            commandName: "retire",
            abstract: "Remove a key from the ring; refused while the key seals, or while a token is sealed with it."
        )

        @Argument(help: "The key's number, as token-cache keyring list shows it.")
        var number: Int

        @OptionGroup var options: StoreCommandOptions

        func run() async throws {
            let reply = try await options.perform(RetireKey(number: number))
            try options.output.print(
                reply,
                """
                key \(reply.retired) is gone from this key ring (with PostgreSQL, copy it to the other servers); for earlier \
                backups, the old key ring is kept with .retired-\(reply.retired) and the key's fingerprint behind its name
                """
            )
        }
    }
}

extension ListKeys.Reply {
    /// The newest key, if it does not seal yet.
    fileprivate var waiting: SealingKey? {
        guard let newest = keys.max(by: { $0.number < $1.number }), !newest.seals else { return nil }
        return newest
    }

    /// Otherwise the key that seals was added on another server.
    fileprivate var hasSealingKey: Bool { keys.contains(where: \.seals) }
}
