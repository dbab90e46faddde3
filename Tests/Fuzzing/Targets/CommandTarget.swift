import Foundation
import Operations
import SQLiteStore
import TokenStore

extension FuzzTarget {
    /// What commands ask of a running server on its control socket: afterwards the store is sound, and each id has the token that
    /// it should have.
    ///
    /// An input is up to six requests of two lines each: the request's name and its JSON.
    static let commands = FuzzTarget(
        "commands",
        words: [
            "{", "}", "[", "]", "\"", ":", ",", "null", "true", "0", "-1", "1e3", "9223372036854775807",
            "-9223372036854775808", "\"id\":", "\"ids\":", "\"tokens\":[", "\"token_info\":\"", "\"written_at\":",
            "\"limit\":", "\"shows_ids\":true", "\"after\":\"1\"", "\"table\":\"tokens\"", "\"table\":\"sessions\"",
            "\"rows\":[", "\"stamps\":[", "\"keys\":[", "\"places\":[", "\"key\":\"", "\"version\":", "\"time\":",
            "\"expires_at\":", "\"digest\":\"", "\"value\":\"", "\"key_number\":", "\"session\":{", "\"user\":\"id1\"",
            "\"number\":", "\"max_age\":", "\"per_user\":", "\"keeps_newer\":true", "id1", "AAAA",
            "\\u0000", "\\ud83d", "<b>", "expiration_date",
        ],
        mutationCount: 100
    ) { input in
        let lines = input.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        let store = try SampleStore.open(SampleStore.folder("commands", database: SampleStore.database))
        defer { store.close() }
        var model = CommandModel()
        for start in stride(from: 0, to: min(lines.count - 1, 12), by: 2) {
            // A backup writes to any path that it is given.
            guard let name = StoreRequestName(rawValue: lines[start].text.string), name != .backup else { continue }
            try perform(name.type, Data(lines[start + 1]), store.administrator, &model)
        }
        let administrator = store.administrator
        for (id, info) in model.tokens {
            let found = try wait { try await administrator.fetch(id) }
            try compare(found?.text.string, info?.text.string, "the token of \(id.text.string)")
        }
        let verification = try wait { try await administrator.verifier?.verify { _ in } }
        try require(verification?.isSound == true, "the store after the requests: \(verification as Any)")
    }

    private static func perform<Request: StoreRequest>(
        _ type: Request.Type, _ body: Data, _ administrator: any StoreAdministrator, _ model: inout CommandModel
    ) throws {
        guard let request = try? OperationsJSON.decode(type, from: body) else { return }
        let text = try OperationsJSON.encode(request)
        let again = try OperationsJSON.encode(try OperationsJSON.decode(type, from: text))
        try require(again == text, "\(again) is not the request \(text)")
        guard let reply = try wait(for: { try? await request.answer(administrator) { _ in } }) else { return }
        _ = try OperationsJSON.decode(Request.Reply.self, from: try OperationsJSON.encode(reply))
        model.note(request, reply)
    }
}

/// What ids have as their tokens after some requests.
private struct CommandModel {
    /// With nil for ids that have none, and without ids of which nothing is certain.
    private(set) var tokens: [[UInt8]: [UInt8]?]

    init() {
        let tokens = SampleStore.ids.map { (Array($0.utf8), SampleStore.info(of: $0, in: SampleStore.rounds[0])) }
        self.tokens = Dictionary(uniqueKeysWithValues: tokens)
    }

    /// Takes over what a request says that it has done.
    mutating func note(_ request: any StoreRequest, _ reply: any Sendable) {
        switch request {
        case let request as StoreTokens:
            let isCertain = request.keepsNewer != true && (reply as? StoreTokens.Reply)?.failures.isEmpty == true
            for token in request.tokens {
                if isCertain { set(token.id, Array(token.tokenInfo.utf8)) } else { forget(token.id) }
            }
        case let request as RemoveTokens: for id in request.ids { set(id, nil) }
        case let request as EraseUser: set(request.user, nil)
        default: break
        }
    }

    private mutating func set(_ id: String, _ info: [UInt8]?) {
        if let id = try? StoredText.id(id) { tokens[id] = .some(info) }
    }

    private mutating func forget(_ id: String) {
        if let id = try? StoredText.id(id) { tokens[id] = nil }
    }
}
