internal import Glibc
package import System

/// A file of keys, and the keys that it had when it was last read without an error.
package typealias BearerKeyFile<Scope: BearerKeyScope> = WatchedFile<BearerKeys<Scope>, BearerKeyFileError<Scope>>

extension BearerKeys {
    /// The keys of a file that must exist.
    package static func loadExisting(_ path: String) throws(BearerKeyFileError<Scope>) -> BearerKeys {
        guard let keys = try load(path) else { throw .missing(path: path) }
        return keys
    }

    /// The keys of a file; nil if there is no such file.
    ///
    /// - Parameter allowsEmpty: Whether a file of zero bytes has no keys; to a server it is one whose text was lost.
    package static func load(
        _ path: String, allowsEmpty: Bool = false
    ) throws(BearerKeyFileError<Scope>) -> BearerKeys? {
        let text: [UInt8]
        do throws(TrustedFile.Fault) {
            text = try TrustedFile.read(path)
        } catch {
            if case .unreadable(let error) = error, error.code == ENOENT { return nil }
            throw .unusable(path: path, error)
        }
        guard allowsEmpty || !text.isEmpty else { throw .empty(path: path) }
        do throws(BearerKeysText<Scope>.Malformed) {
            return try BearerKeysText<Scope>.keys(of: text)
        } catch {
            throw .malformed(path: path, line: error.line, reason: error.reason)
        }
    }

    /// Changes the keys of a file, which is replaced as a whole and created with mode 0600 if it is missing.
    ///
    /// Whoever could read the file can read the new one: otherwise a server of another user would not learn of the change.
    ///
    /// If `body` throws, the file stays as it is. A link at the path is followed, and its target replaced.
    package static func change<Result>(
        _ path: String, _ body: (inout BearerKeys) throws -> Result
    ) throws -> Result {
        let target = try FollowedPath(path).path
        return try FileReplacement.withLock(onFolderOf: target) {
            var keys = try load(target, allowsEmpty: true) ?? BearerKeys()
            let result = try body(&keys)
            do throws(SystemError) {
                try FileReplacement.replace(target, with: BearerKeysText<Scope>.bytes(of: keys), keeping: 0o644)
            } catch {
                throw BearerKeyFileError<Scope>.unwritable(path: path, error)
            }
            return result
        }
    }
}

/// Why the keys of a file cannot be read or changed; says what to do about it, and nothing of the keys.
package enum BearerKeyFileError<Scope: BearerKeyScope>: Error, Hashable, CustomStringConvertible {
    case missing(path: String)
    case unusable(path: String, TrustedFile.Fault)
    case empty(path: String)
    /// Lines count from 1.
    case malformed(path: String, line: Int, reason: String)
    case unwritable(path: String, SystemError)

    package var description: String {
        let kind = Scope.kind
        return switch self {
        case .missing(let path):
            """
            the file \(path) of \(kind.setting) does not exist; `token-cache \(kind.command) add NAME --scope \
            \(kind.commonScope)` makes it with a first key
            """
        case .unusable(let path, let fault): "the file \(path) of \(kind.plural) \(fault)"
        case .empty(let path):
            """
            the file \(path) of \(kind.plural) is empty, as after a write for which the disk had no room; \
            `token-cache \(kind.command) add` writes a key, and a file without keys has a line that begins with #
            """
        case .malformed(let path, let line, let reason): "the \(kind.plural) in \(path), line \(line): \(reason)"
        case .unwritable(let path, let error):
            """
            the \(kind.plural) in \(path) cannot be written: \(error.reason)\
            \(error.fileAdvice(otherwise: "the folder has to exist, and this command needs write access to it"))
            """
        }
    }
}
