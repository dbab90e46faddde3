/// Has a store read ahead what requests will ask for.
package protocol StorePreloader: Sendable {
    /// Reads the database into the system's memory, in the background; to be called once.
    func preload()
}
