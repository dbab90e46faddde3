import Glibc
package import System

/// Why a store cannot be opened; says what to do about it.
package enum StoreOpenError: Error, Hashable, CustomStringConvertible {
    /// The data folder cannot be used or locked.
    case directory(DataDirectoryError)
    /// The key ring cannot be used, or is not the right one.
    case keyRing(KeyRingError)
    /// There is no store at the path.
    case missing(path: String)
    /// The store has rows in the clear, see `ClearRow`.
    case notSealed(place: String)
    /// Any other reason, in the store's own words.
    case store(StoreFault)

    var cause: StoreError.Cause {
        switch self {
        case .store(let fault): fault.cause
        case .directory, .keyRing, .missing, .notSealed: .database
        }
    }

    /// Whether the store may be opened later without intervention.
    package var mayRetry: Bool { if case .store(let fault) = self { fault.mayRetry } else { false } }

    package var description: String {
        switch self {
        case .directory(let error): "\(error)"
        case .keyRing(let error): "\(error)"
        case .missing(let path):
            "there is no store at \(path); name its folder with --data-directory, --config or, for copy, --from"
        case .notSealed(let place):
            """
            \(place) holds tokens in the clear, which only version 1.0 serves; \
            seal them with token-cache copy --from OLD --to NEW, into a new folder or database, and serve that one
            """
        case .store(let fault): "\(fault)"
        }
    }
}

/// Why a data folder cannot be used; says what to do about it.
package enum DataDirectoryError: Error, Hashable, CustomStringConvertible {
    /// It cannot be created, entered or written; with the `errno` of the call.
    case unusable(path: String, call: String, code: Int32)
    /// The path exists and is no directory.
    case notADirectory(path: String)
    /// Another process has it locked; its process id, if it could be read.
    case inUse(path: String, processID: Int?)
    /// A link that is not followed stands in the place of a file.
    case link(LinkError)

    package var description: String {
        switch self {
        case .unusable(let path, let call, let code):
            """
            the data directory \(path) cannot be used (\(call): \(SystemError.reason(code))); \
            \(Self.advice(code)), or name another one with --data-directory
            """
        case .notADirectory(let path):
            "the data directory \(path) is not a directory; name another one with --data-directory"
        case .inUse(let path, let processID):
            """
            the data directory \(path) is in use by \(processID.map { "process \($0)" } ?? "another process"); \
            stop that one first, or name another directory
            """
        case .link(let error): "\(error)"
        }
    }

    /// What to do about a folder that is read-only.
    static let readOnlyAdvice = """
        for a systemd service it is usually ProtectSystem= that makes it so: add the folder to ReadWritePaths= of the unit; \
        otherwise mount its file system for writing
        """

    private static func advice(_ code: Int32) -> String {
        switch code {
        case EROFS: readOnlyAdvice
        case ENOSPC, EDQUOT: "free some space there"
        default: "give the server's user write access to it"
        }
    }
}
