import TokenStore

/// A change to a `MemoryStore` that waits.
struct MemoryChange {
    /// The id whose token it changes; nil for none.
    var writtenID: [UInt8]?
    private let body: (MemoryStore, Retention, StoreError?) -> Void

    /// - Parameter body: Makes the change and notes its outcome; with an error, it only notes that.
    init(writtenID: [UInt8]? = nil, _ body: @escaping (MemoryStore, Retention, StoreError?) -> Void) {
        self.writtenID = writtenID
        self.body = body
    }

    func carryOut(on store: MemoryStore, _ retention: Retention, _ error: StoreError?) {
        body(store, retention, error)
    }
}
