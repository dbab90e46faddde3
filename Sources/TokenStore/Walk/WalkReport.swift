/// What a round of the walk over all rows has found.
package struct WalkReport: Codable, Hashable, Sendable {
    /// The round's number; later rounds have larger ones.
    package var round = 0
    /// When it began and ended, in seconds since 1970; `endedAt` is nil while it is under way.
    package var beganAt: Int64
    package var endedAt: Int64?
    /// Rows that were visited, expired ones included.
    ///
    /// On PostgreSQL, a row that a client's write moves to another page meanwhile may be counted twice, or not at all.
    package var tokens = 0
    package var sessions = 0
    /// Tokens and sessions that were deleted because they had expired.
    package var expired = 0
    /// Tokens that were sealed again.
    package var rekeyed = 0
    /// Rows that do not open, by what is wrong with them.
    package var unreadable: [String: Int] = [:]
    /// Names of rows that do not open, ten at most.
    package var unreadableRows: [String] = []
    /// Damage besides rows that do not open, ten findings at most.
    package var damages: [String] = []
    /// Numbers of the keys with which the rows that open are sealed once the walk has visited them.
    package var keyNumbers: Set<Int> = []
    /// Numbers of keys that rows are sealed with but the key ring lacks.
    package var missingKeys: Set<Int> = []
    /// Whether a token was not shown to a `TokenInspector`, as by a command or a server that has none; nil means no.
    package var hasPassedOver: Bool?
    /// Times of writing that the round corrects, see `ExpiryClock.misdated`; nil for none.
    ///
    /// Kept with the state, because any server may take the round's steps.
    package var misdated: Range<Int64>?
    /// When the latest of the tokens was written, in seconds since 1970; nil if there were none.
    package var lastWrittenAt: Int64?

    /// How many rows and damages are named, and how many reasons are told apart: a damaged store may have any number of them.
    private static let named = 10
    private static let reasons = 20

    package init(beganAt: Int64) {
        self.beganAt = beganAt
    }

    /// Whether adding to its numbers cannot overflow: a manipulated store may hold any number.
    var isPlausible: Bool {
        let counts = [round, tokens, sessions, expired, rekeyed] + unreadable.values
        let times = [beganAt, endedAt].compactMap(\.self)
        return unreadable.count <= 2 * Self.reasons && counts.allSatisfy { (0...1 << 48).contains($0) }
            && times.allSatisfy { (-(1 << 48)...1 << 48).contains($0) }
    }

    /// Counts a row that opens.
    ///
    /// - Parameter keyNumber: The key with which it is sealed after the visit.
    package mutating func noteOpened(keyNumber: Int) {
        if !keyNumbers.contains(keyNumber) { keyNumbers.insert(keyNumber) }
    }

    /// Counts a row that does not open.
    package mutating func noteUnreadable(_ error: SealingError, _ name: @autoclosure () -> String) {
        let reason = "\(error)"
        let isKnown = unreadable[reason] != nil || unreadable.count < Self.reasons
        unreadable[isKnown ? reason : "rows do not open for further reasons", default: 0] += 1
        if unreadableRows.count < Self.named { unreadableRows.append(name()) }
        if case .missingKey(let number) = error, missingKeys.count < Self.reasons { missingKeys.insert(number) }
    }

    package mutating func noteDamage(_ text: String) {
        if damages.count < Self.named { damages.append(text) }
    }

    /// Counts a token, whether it opens or not.
    package mutating func noteToken(writtenAt: Int64) {
        tokens += 1
        lastWrittenAt = max(lastWrittenAt ?? .min, writtenAt)
    }

    /// Whether the round corrects all of these times of writing.
    package func corrects(_ times: Range<Int64>) -> Bool {
        misdated.map { times.clamped(to: $0) == times } ?? false
    }

    /// The reasons for which rows do not open, other than that the key ring lacks their keys.
    package var reasonsBesideKeys: [String: Int] {
        let ofKeys = missingKeys.map { "\(SealingError.missingKey(number: $0))" }
        return unreadable.filter { !ofKeys.contains($0.key) }
    }

    /// How many rows do not open.
    package var unreadableCount: Int { unreadable.values.reduce(0, +) }

    /// Whether every row could be read and opens.
    package var isSound: Bool { unreadable.isEmpty && damages.isEmpty }
}
