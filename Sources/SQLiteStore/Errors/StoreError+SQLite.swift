internal import TokenStore

extension StoreFault {
    init(_ error: SQLiteError) {
        self.init(
            "\(error)", cause: error.isDiskFull ? .diskFull : .database,
            mayRetry: error.isTransient && !error.isOfOneStatement, isOfOneToken: error.isOfOneStatement
        )
    }
}

extension StoreError {
    /// The database is no longer in its place.
    static func vanished(path: String) -> StoreError {
        .unavailable(
            StoreFault(
                "\(path) is no longer there; put it back, or restart to begin with an empty store", cause: .vanished,
                mayRetry: true
            )
        )
    }

    /// The WAL was removed or cut while the store was in use.
    static func walLost(path: String) -> StoreError {
        .unavailable(
            StoreFault(
                "\(path) was removed or cut; the database is being opened again", cause: .vanished, mayRetry: true
            )
        )
    }
}
