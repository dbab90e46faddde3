/// Why a store cannot be opened; says what to do about it.
package enum StoreOpenError: Error, Hashable, CustomStringConvertible {
    /// The data folder cannot be used or locked.
    case directory(DataDirectoryError)
    /// The key ring cannot be used, or is not the right one.
    case keyRing(KeyRingError)
    /// There is no store at the path.
    case missing(path: String)
    /// The settings ask for sealing, and the store has tokens in the clear.
    case notSealed(path: String)
    /// The settings ask for no sealing, and the store is sealed.
    case sealed(path: String)
    /// Any other reason, in the store's own words.
    case store(StoreFault)

    package var cause: StoreError.Cause {
        switch self {
        case .store(let fault): fault.cause
        case .directory, .keyRing, .missing, .notSealed, .sealed: .database
        }
    }

    /// Whether the store may be opened later without intervention.
    package var mayRetry: Bool { if case .store(let fault) = self { fault.mayRetry } else { false } }

    package var description: String {
        switch self {
        case .directory(let error): "\(error)"
        case .keyRing(let error): "\(error)"
        case .missing(let path): "there is no store at \(path); name its folder with --data-directory or --config"
        case .notSealed(let path):
            """
            the store \(path) holds tokens in the clear, and sealing is on; \
            set sealing.enabled to off, or seal it: token-cache copy, to another folder
            """
        case .sealed(let path):
            """
            the store \(path) is sealed, and sealing is off; \
            set sealing.enabled to on, or unseal it: token-cache copy, to another folder
            """
        case .store(let fault): "\(fault)"
        }
    }
}
