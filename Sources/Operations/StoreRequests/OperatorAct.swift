/// What the log says of a request that changes the store, or that shows tokens of many users.
///
/// Without ids, users and tokens.
package struct OperatorAct: Hashable, Sendable {
    /// What came of it.
    package enum Outcome: Hashable, Sendable {
        case done(String)
        /// How many things the request was about, and what they are. A command may send many requests, whose numbers are
        /// added up.
        case counted(Int, String)
    }

    /// Such as `backup`.
    let name: String
    let outcome: Outcome

    static func done(_ name: String, _ text: String) -> OperatorAct {
        OperatorAct(name: name, outcome: .done(text))
    }

    static func counted(_ name: String, _ count: Int, _ what: String) -> OperatorAct {
        OperatorAct(name: name, outcome: .counted(count, what))
    }
}
