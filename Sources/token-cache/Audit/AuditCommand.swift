import ArgumentParser

/// The command `token-cache audit`.
struct AuditCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "audit",
        abstract: "Make the keys of the audit log, and verify it.",
        discussion: """
            EXAMPLES
              token-cache audit key first.key
              token-cache audit verify audit.ndjson.1 audit.ndjson --key first.key
              zcat audit.ndjson.2.gz | token-cache audit verify - --key first.key
              token-cache audit pseudonym - --key first.key < user.txt
            """,
        subcommands: [AuditKey.self, AuditVerify.self, AuditPseudonymOf.self]
    )
}
