/// Something that happened to the server and that explains what the figures did.
struct HistoryEvent: Sendable, Equatable {
    enum Kind: String, Sendable {
        case start, reload, fault, recovery, failover, backup, drain
    }

    let kind: Kind
    /// For operators, without secrets.
    let text: String

    /// An event in its place between others.
    struct Placed: Sendable, Equatable {
        /// 1 for the first event since the start.
        let number: UInt64
        let position: UInt32
        let event: HistoryEvent
    }

    /// The longest text; what is longer ends with an ellipsis.
    static let textLimit = 300

    init(_ kind: Kind, _ text: String) {
        self.kind = kind
        self.text = text.count <= Self.textLimit ? text : text.prefix(Self.textLimit - 1) + "…"
    }
}
