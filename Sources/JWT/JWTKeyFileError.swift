package import System

/// Why a file of keys cannot be used, and what to do about it.
package struct JWTKeyFileError: Error, Hashable, CustomStringConvertible {
    package enum Problem: Hashable, Sendable {
        /// The file cannot be opened or read.
        case unreadable(SystemError)
        /// It has more than `JWTKeyFile.sizeLimit` bytes.
        case tooLarge
        case unusable(JWTKeyError)
    }

    /// The path as configured.
    package let file: String
    package let problem: Problem

    package var description: String {
        switch problem {
        case .unreadable(let error):
            """
            \(file) cannot be read: \(error.reason)\
            \(error.fileAdvice(otherwise: "check the path, and that the server's user may read it"))
            """
        case .tooLarge:
            "\(file) has more than \(JWTKeyFile.sizeLimit >> 20) MiB; give the issuer's JWK set, which has some kilobytes"
        case .unusable(let error): "\(file) \(error.description)"
        }
    }
}
