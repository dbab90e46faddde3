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
    /// The files are not as they were, as the text says.
    static func vanished(_ text: String) -> StoreError {
        .unavailable(StoreFault(text, cause: .vanished, mayRetry: true))
    }
}
