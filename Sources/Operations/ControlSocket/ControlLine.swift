internal import SQLiteStore
internal import TokenStore

/// A line of an answer on the control socket: how far the work is, or in the last line its reply or what is wrong.
struct ControlLine<Reply: Codable & Sendable>: Codable, Sendable {
    var progress: StoreAdministrator.Progress?
    var reply: Reply?
    var error: String?
}

/// Stands for no reply at all.
struct NoReply: Codable, Sendable {}
