/// Copies rows of an open store as they lie there to another store with the same keys, and back.
///
/// Rows stay sealed with the key that has sealed them, and keep their times and, where nothing speaks against that, their
/// versions. Each step is short, so that both stores can be in use, and may be repeated.
package protocol StoreTransfer: Sendable {
    func facts() async throws(StoreError) -> TransferFacts

    /// Reads some rows, in an order that says nothing of them; rows that do not open are counted and left out.
    ///
    /// - Parameters:
    ///   - table: Of tokens or sessions.
    ///   - cursor: The `next` of the page before; nil for the first page.
    ///   - limit: How many rows to return at most; fewer are returned when they are large.
    func rows(
        of table: TransferTable, after cursor: StoreCursor?, limit: Int
    ) async throws(StoreError) -> TransferPage

    /// Compares rows of another store with what is here.
    ///
    /// - Returns: How it stands with each.
    func compare(_ stamps: [TransferStamp], in table: TransferTable) async throws(StoreError) -> [TransferStanding]

    /// Takes rows of another store, except those that are older than what is here.
    ///
    /// - Parameters:
    ///   - rows: Of different keys.
    ///   - table: Where they belong.
    /// - Returns: How it stands with each afterwards: `.same` if it was taken.
    func take(_ rows: [TransferRow], into table: TransferTable) async throws(StoreError) -> [TransferStanding]

    /// The keys and versions of some rows, also of those that do not open; as `rows`.
    func places(
        in table: TransferTable, after cursor: StoreCursor?, limit: Int
    ) async throws(StoreError) -> TransferPlaces

    /// Those of some keys that are not here.
    func missing(_ keys: [EncodedBytes], in table: TransferTable) async throws(StoreError) -> [EncodedBytes]

    /// Removes rows that are as they were seen; returns how many.
    func remove(_ places: [TransferPlaces.Place], from table: TransferTable) async throws(StoreError) -> Int
}

/// What two stores must have in common.
package struct TransferFacts: Codable, Sendable {
    package var isSealed: Bool
    /// Identifies the key ring; nil in the clear.
    package var keyRing: EncodedBytes?
    /// The numbers of the ring's keys.
    package var keyNumbers: [Int]
    /// Maybe an estimate.
    package var tokens: Int
    /// The machines on which other servers use the store at the moment.
    package var servers: [String]

    package init(
        isSealed: Bool, keyRing: EncodedBytes?, keyNumbers: [Int], tokens: Int, servers: [String]
    ) {
        self.isSealed = isSealed
        self.keyRing = keyRing
        self.keyNumbers = keyNumbers
        self.tokens = tokens
        self.servers = servers
    }

    /// - Parameter sealing: The store's.
    package init(_ sealing: Sealing, tokens: Int, servers: [String]) throws(StoreError) {
        let ring = sealing.ring
        do throws(SealingError) {
            self.init(
                isSealed: ring != nil,
                keyRing: try ring.map { (ring) throws(SealingError) in EncodedBytes(try ring.identity()) },
                keyNumbers: ring?.keys.map(\.number) ?? [], tokens: tokens, servers: servers)
        } catch {
            throw .sealing(error)
        }
    }
}

/// Some rows.
package struct TransferPage: Codable, Sendable {
    package var rows: [TransferRow] = []
    /// Rows that did not open.
    package var unreadable = 0
    /// Where the next page begins; nil when there is none.
    package var next: StoreCursor?

    package init() {}
}

/// Where some rows lie.
package struct TransferPlaces: Codable, Sendable {
    package var places: [Place] = []
    /// Where the next page begins; nil when there is none.
    package var next: StoreCursor?

    package init() {}

    package struct Place: Codable, Hashable, Sendable {
        package var key: EncodedBytes
        /// As in `TransferStamp`.
        package var version: Int64

        package init(key: EncodedBytes, version: Int64) {
            self.key = key
            self.version = version
        }
    }
}
