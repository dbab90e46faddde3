import Cryptography
import HTTP
package import TokenStore

/// The sessions that were used recently and whose they are, in memory and within a limit of bytes.
///
/// A session that is found here has not ended: the store announces the end of a session before it commits it, and from then on
/// the entry is not valid, as its ticket is not current any more. If the store does not announce all ends, no entry is valid.
///
/// Any thread.
package final class SessionCache: Sendable {
    /// A session that was found in the store.
    final class Entry: RecentEntry {
        let session: UserSession
        let key: SessionKey
        /// As clients send it.
        fileprivate let text: [UInt8]
        /// Its pseudonyms in the audit log; nil without an audit log.
        let auditNames: AuditTrail.Names?
        fileprivate let ticket: ChangeVersions.Ticket

        init(
            _ session: UserSession, _ key: SessionKey, _ text: [UInt8], _ auditNames: AuditTrail.Names?,
            _ ticket: ChangeVersions.Ticket
        ) {
            self.session = session
            self.key = key
            self.text = text
            self.auditNames = auditNames
            self.ticket = ticket
        }
    }

    private let changes = ChangeVersions()
    private let entries: RecentTable<Entry>
    /// Whether the store reports the end of every session.
    let seesEnds: Bool

    /// - Parameters:
    ///   - limit: In bytes; with 0 nothing is kept.
    ///   - seesEnds: Whether the store reports the end of every session.
    package init(limit: Int, seesEnds: Bool = true) {
        entries = RecentTable(limit: limit)
        self.seesEnds = seesEnds
    }

    /// Hashes only the last characters, which is enough: nobody can choose sessions that collide, as the server makes them.
    private static func hash(of text: Span<UInt8>) -> Int { text.extracting(last: 16).seededHash }

    // MARK: - Reading

    /// Finds a session that has not ended; the caller looks whether it has expired.
    func find(_ text: Span<UInt8>) -> Entry? {
        entries.find(Self.hash(of: text)) { entry in
            let known = entry.text
            return isValid(entry) && ConstantTime.areEqual(known.span, text) ? entry : nil
        }
    }

    /// Whether a session has certainly not ended since it was read from the store.
    func isValid(_ entry: Entry) -> Bool { seesEnds && changes.isCurrent(entry.ticket) }

    /// The ticket to take before a session is read from the store.
    func ticket(for key: SessionKey) -> ChangeVersions.Ticket { changes.ticket(for: key.hashValue) }

    /// Keeps an entry, unless a session of its group has ended or is ending since its ticket was taken.
    func insert(_ entry: Entry) {
        let text = entry.text
        // The cost includes its place in the table.
        entries.insert(under: Self.hash(of: text.span), cost: entry.session.user.count + 500) {
            isValid(entry) ? entry : nil
        }
    }

    package var counts: CacheCounts { entries.counts }

    // MARK: - The store's reports

    /// The end of these sessions is about to be committed.
    package func willEnd(_ keys: [SessionKey]) {
        for key in keys { changes.begin(key.hashValue) }
    }

    /// The change that `willEnd` announced is over, with or without success.
    package func didEnd(_ keys: [SessionKey]) {
        for key in keys { changes.end(key.hashValue) }
    }

    /// Any session may have ended.
    package func didChangeEverything() { changes.changeEverything() }
}
