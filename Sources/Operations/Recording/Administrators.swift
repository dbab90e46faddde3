internal import TokenStore

/// Makes the store's administrator for a requester: with an audit log, one whose acts are recorded as the requester's.
struct Administrators: Sendable {
    private let make: @Sendable (Requester) -> any StoreAdministrator

    init(_ make: @escaping @Sendable (Requester) -> any StoreAdministrator) {
        self.make = make
    }

    func administrator(for requester: Requester) -> any StoreAdministrator { make(requester) }
}
