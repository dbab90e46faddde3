/// Something that happened to the server and may explain why the figures changed.
struct HistoryEvent: Sendable, Equatable {
    enum Kind: String, Sendable {
        case start, reload, fault, recovery, failover, backup, drain
    }

    let kind: Kind
    /// For operators, without secrets.
    let text: String
    /// Whether something has failed, which operators should look at.
    let isFailure: Bool

    /// An event and its place in the order of all events.
    struct Placed: Sendable, Equatable {
        /// 1 for the first event since the start.
        let number: UInt64
        let position: UInt32
        let event: HistoryEvent
    }

    /// The longest text; what is longer ends with an ellipsis.
    static let textLimit = 300

    init(_ kind: Kind, _ text: String, isFailure: Bool = false) {
        self.kind = kind
        self.isFailure = isFailure
        self.text = text.count <= Self.textLimit ? text : text.prefix(Self.textLimit - 1) + "…"
    }
}
