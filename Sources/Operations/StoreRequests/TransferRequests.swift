package import TokenStore

/// Reads what two stores must have in common before rows are copied from one to the other.
package struct ReadTransferFacts: StoreRequest {
    package static let name = StoreRequestName.copyFacts

    package init() {}

    package func answer(
        _ administrator: any StoreAdministrator, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> TransferFacts {
        try await administrator.existingTransfer.facts()
    }
}

/// Reads rows as they lie in the store.
package struct ReadRows: StoreRequest {
    package static let name = StoreRequestName.copyRows
    package static let replySize = 16 << 20
    package var table: TransferTable
    package var after: StoreCursor?
    package var limit: Int

    package func act(_ reply: TransferPage) -> OperatorAct? {
        .counted("copy from this store", reply.rows.count, "rows read")
    }

    package init(of table: TransferTable, after: StoreCursor?, limit: Int) {
        (self.table, self.after, self.limit) = (table, after, limit)
    }

    package func answer(
        _ administrator: any StoreAdministrator, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> TransferPage {
        guard (1...10_000).contains(limit) else { throw .refused("limit is \(limit); allowed is 1 to 10000") }
        return try await administrator.existingTransfer.rows(of: table, after: after, limit: limit)
    }
}

/// Compares rows of another store with the store's.
package struct CompareRows: StoreRequest {
    package static let name = StoreRequestName.copyCompare
    package var table: TransferTable
    package var stamps: [TransferStamp]

    package struct Reply: Codable, Sendable {
        /// In the order of the stamps.
        package var standings: [TransferStanding]
    }

    package init(_ stamps: [TransferStamp], in table: TransferTable) {
        (self.table, self.stamps) = (table, stamps)
    }

    package func answer(
        _ administrator: any StoreAdministrator, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> Reply {
        Reply(standings: try await administrator.existingTransfer.compare(stamps, in: table))
    }
}

/// Takes rows of another store that are not older than the store's.
package struct TakeRows: StoreRequest {
    package static let name = StoreRequestName.copyTake
    package var table: TransferTable
    package var rows: [TransferRow]

    package func act(_ reply: CompareRows.Reply) -> OperatorAct? {
        .counted("copy to this store", rows.count, "rows received")
    }

    package init(_ rows: [TransferRow], into table: TransferTable) {
        (self.table, self.rows) = (table, rows)
    }

    package func answer(
        _ administrator: any StoreAdministrator, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> CompareRows.Reply {
        CompareRows.Reply(standings: try await administrator.existingTransfer.take(rows, into: table))
    }
}

/// Reads keys and versions of rows.
package struct ReadPlaces: StoreRequest {
    package static let name = StoreRequestName.copyPlaces
    package static let replySize = 4 << 20
    package var table: TransferTable
    package var after: StoreCursor?
    package var limit: Int

    package init(in table: TransferTable, after: StoreCursor?, limit: Int) {
        (self.table, self.after, self.limit) = (table, after, limit)
    }

    package func answer(
        _ administrator: any StoreAdministrator, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> TransferPlaces {
        guard (1...10_000).contains(limit) else { throw .refused("limit is \(limit); allowed is 1 to 10000") }
        return try await administrator.existingTransfer.places(in: table, after: after, limit: limit)
    }
}

/// Says which rows the store does not have.
package struct FindMissingRows: StoreRequest {
    package static let name = StoreRequestName.copyMissing
    package static let replySize = 4 << 20
    package var table: TransferTable
    package var keys: [EncodedBytes]

    package struct Reply: Codable, Sendable {
        package var keys: [EncodedBytes]
    }

    package init(_ keys: [EncodedBytes], in table: TransferTable) {
        (self.table, self.keys) = (table, keys)
    }

    package func answer(
        _ administrator: any StoreAdministrator, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> Reply {
        Reply(keys: try await administrator.existingTransfer.missing(keys, in: table))
    }
}

/// Removes rows that are as they were seen.
package struct RemoveRows: StoreRequest {
    package static let name = StoreRequestName.copyRemove
    package var table: TransferTable
    package var places: [TransferPlaces.Place]

    package struct Reply: Codable, Sendable {
        package var removed: Int
    }

    package init(_ places: [TransferPlaces.Place], from table: TransferTable) {
        (self.table, self.places) = (table, places)
    }

    package func answer(
        _ administrator: any StoreAdministrator, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> Reply {
        Reply(removed: try await administrator.existingTransfer.remove(places, from: table))
    }
}

extension StoreAdministrator {
    fileprivate var existingTransfer: any StoreTransfer {
        get throws(StoreError) {
            guard let transfer else { throw .refused(StoreCapability.transfer.absence) }
            return transfer
        }
    }
}
