internal import Glibc
internal import Synchronization
package import System

/// A file of keys, and the keys that it had when it was last read without an error.
///
/// Any thread.
package final class BearerKeyFile<Scope: BearerKeyScope>: Sendable {
    package let path: String
    private let state: Mutex<State>

    private struct State {
        var keys: BearerKeys<Scope>
        /// The file as it was before the last attempt to read it, even if it failed, so that a failure is reported once.
        var stamp: FileStamp?
    }

    /// Far more than the most keys take.
    private static var largestInBytes: Int { 1 << 20 }

    /// Reads the file, which must exist.
    package init(path: String) throws(BearerKeyFileError<Scope>) {
        // Before reading, so that a change in between is noticed.
        let stamp = FileStamp(path: path)
        state = Mutex(State(keys: try Self.loadExisting(path), stamp: stamp))
        self.path = path
    }

    /// The keys in use.
    package var keys: BearerKeys<Scope> { state.withLock(\.keys) }

    /// Whether the file was written or replaced since the last attempt to read it, successful or not.
    ///
    /// Costs a stat(2).
    package var hasChanged: Bool { FileStamp(path: path) != state.withLock(\.stamp) }

    /// Reads the file again; after an error, the keys stay as they were.
    package func reload() throws(BearerKeyFileError<Scope>) {
        use(try read())
    }

    /// Keys that were read and are not used yet.
    package struct Reading: Sendable {
        fileprivate let keys: BearerKeys<Scope>
        fileprivate let stamp: FileStamp?
    }

    /// Reads the file without using the keys yet.
    package func read() throws(BearerKeyFileError<Scope>) -> Reading {
        let stamp = FileStamp(path: path)
        do throws(BearerKeyFileError<Scope>) {
            return Reading(keys: try Self.loadExisting(path), stamp: stamp)
        } catch {
            state.withLock { $0.stamp = stamp }
            throw error
        }
    }

    /// Uses what was read.
    package func use(_ reading: Reading) {
        state.withLock { $0 = State(keys: reading.keys, stamp: reading.stamp) }
    }

    private static func loadExisting(_ path: String) throws(BearerKeyFileError<Scope>) -> BearerKeys<Scope> {
        guard let keys = try load(path) else { throw .missing(path: path) }
        return keys
    }

    /// The keys of a file; nil if there is no such file.
    package static func load(_ path: String) throws(BearerKeyFileError<Scope>) -> BearerKeys<Scope>? {
        let (bytes, status): ([UInt8], FileStatus)
        do throws(SystemError) {
            // Without O_NONBLOCK, open(2) would wait for the writer of a pipe.
            let descriptor = try FileDescriptor(opening: path, O_RDONLY | O_NONBLOCK)
            status = try FileStatus.read(descriptor.number)
            bytes = status.isFile ? try BlockingIO.read(from: descriptor.number, limit: largestInBytes + 1) : []
        } catch {
            if error.code == ENOENT { return nil }
            throw .unreadable(path: path, error)
        }
        guard status.isFile else { throw .notAFile(path: path) }
        // Whoever may write to it could give himself a key. Others may read it: nobody guesses a secret from its digest.
        guard status.mode & 0o002 == 0, status.mode & 0o020 == 0 || status.volumeGroup != nil else {
            throw .writable(path: path)
        }
        guard bytes.count <= largestInBytes else { throw .malformed(path: path, line: 0, reason: "it is too long") }
        do throws(BearerKeysText<Scope>.Malformed) {
            return try BearerKeysText<Scope>.keys(of: bytes)
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
        _ path: String, _ body: (inout BearerKeys<Scope>) throws -> Result
    ) throws -> Result {
        let target = try FollowedPath(path).path
        return try FileReplacement.withLock(onFolderOf: target) {
            var keys = try load(target) ?? BearerKeys<Scope>()
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
    case unreadable(path: String, SystemError)
    case notAFile(path: String)
    /// Other users than the file's owner may write to it.
    case writable(path: String)
    /// Lines count from 1; 0 stands for the whole file.
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
        case .unreadable(let path, let error):
            """
            the \(kind.plural) in \(path) cannot be read: \(error.reason)\
            \(error.fileAdvice(otherwise: "give the server's user read access to the file"))
            """
        case .notAFile(let path):
            "the \(kind.plural) in \(path) cannot be read: it is no regular file; name one in \(kind.setting)"
        case .writable(let path):
            """
            the \(kind.plural) in \(path) can be changed by other users, who could give themselves a key; look for keys that you \
            do not know with `token-cache \(kind.command) list`, after chmod go-w
            """
        case .malformed(let path, let line, let reason):
            "the \(kind.plural) in \(path)\(line == 0 ? "" : ", line \(line)"): \(reason)"
        case .unwritable(let path, let error):
            """
            the \(kind.plural) in \(path) cannot be written: \(error.reason)\
            \(error.fileAdvice(otherwise: "the folder has to exist, and this command needs write access to it"))
            """
        }
    }
}
