internal import Audit
internal import TokenStore

/// Another transfer, of which each step that reads or changes rows is in the audit log before its outcome is known.
///
/// An event is of up to some hundred rows, without their users: rows are copied as they were sealed.
struct AuditedTransfer: StoreTransfer {
    private let base: any StoreTransfer
    private let trail: OperatorTrail

    init(_ base: any StoreTransfer, _ trail: OperatorTrail) {
        self.base = base
        self.trail = trail
    }

    func facts() async throws(StoreError) -> TransferFacts { try await base.facts() }

    func rows(
        of table: TransferTable, after cursor: StoreCursor?, limit: Int
    ) async throws(StoreError) -> TransferPage {
        try await trail.recording(.copyFrom) { () async throws(StoreError) in
            try await base.rows(of: table, after: cursor, limit: limit)
        }
    }

    func compare(_ stamps: [TransferStamp], in table: TransferTable) async throws(StoreError) -> [TransferStanding] {
        try await base.compare(stamps, in: table)
    }

    func take(_ rows: [TransferRow], into table: TransferTable) async throws(StoreError) -> [TransferStanding] {
        try await trail.recording(.copyTo) { () async throws(StoreError) in
            try await base.take(rows, into: table)
        }
    }

    func places(
        in table: TransferTable, after cursor: StoreCursor?, limit: Int
    ) async throws(StoreError) -> TransferPlaces {
        try await base.places(in: table, after: cursor, limit: limit)
    }

    func missing(_ keys: [EncodedBytes], in table: TransferTable) async throws(StoreError) -> [EncodedBytes] {
        try await base.missing(keys, in: table)
    }

    func remove(_ places: [TransferPlaces.Place], from table: TransferTable) async throws(StoreError) -> Int {
        try await trail.recording(.copyTo) { () async throws(StoreError) in
            try await base.remove(places, from: table)
        }
    }
}
