/// Why a store cannot be opened; says what to do about it.
package enum StoreOpenError: Error, Hashable, CustomStringConvertible {
    /// The data folder cannot be used or locked.
    case directory(DataDirectoryError)
    /// The key ring cannot be used, or is not the right one.
    case keyRing(KeyRingError)
    /// There is no store; where it was looked for.
    case missing(path: String)
    /// What the store itself says.
    case store(StoreFault)

    package var cause: StoreError.Cause {
        switch self {
        case .store(let fault): fault.cause
        case .directory, .keyRing, .missing: .database
        }
    }

    package var description: String {
        switch self {
        case .directory(let error): "\(error)"
        case .keyRing(let error): "\(error)"
        case .missing(let path): "there is no store at \(path); name its folder with --data-directory"
        case .store(let fault): "\(fault)"
        }
    }
}
