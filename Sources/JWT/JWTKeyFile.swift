package import System

/// The file with the issuer's keys (a JWK set), and the verifier that uses them.
package typealias JWTKeyFile = WatchedFile<JWTVerifier, JWTKeyFileError>

extension JWTVerifier {
    /// Reads a file with a JWK set.
    ///
    /// - Parameters:
    ///   - path: Of the file.
    ///   - rules: What tokens have to be.
    package static func load(_ path: String, _ rules: JWTRules) throws(JWTKeyFileError) -> JWTVerifier {
        let text: [UInt8]
        do throws(TrustedFile.Fault) {
            text = try TrustedFile.read(path)
        } catch {
            throw JWTKeyFileError(file: path, problem: .unreadable(error))
        }
        do throws(JWTKeyError) {
            return JWTVerifier(rules: rules, keys: try JWTKeySet(parsing: text.span, algorithms: rules.algorithms))
        } catch {
            throw JWTKeyFileError(file: path, problem: .unusable(error))
        }
    }
}

/// Why a file of keys cannot be used, and what to do about it.
package struct JWTKeyFileError: Error, Hashable, CustomStringConvertible {
    package enum Problem: Hashable, Sendable {
        case unreadable(TrustedFile.Fault)
        case unusable(JWTKeyError)
    }

    /// The path as configured.
    package let file: String
    package let problem: Problem

    package var description: String {
        switch problem {
        case .unreadable(let fault): "\(file) \(fault)"
        case .unusable(let error): "\(file) \(error)"
        }
    }
}
