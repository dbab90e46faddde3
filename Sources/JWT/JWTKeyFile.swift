internal import Glibc
internal import Synchronization
internal import System

/// The file with the issuer's keys (a JWK set), and the verifier that uses them.
///
/// The file is read again when it changes; while it is unusable, the previous keys stay in use. Any thread.
package final class JWTKeyFile: Sendable {
    /// Largest file that is read, in bytes.
    package static let sizeLimit = 1 << 20

    private let state: Mutex<State>

    fileprivate struct State: Sendable {
        var path: String
        var verifier: JWTVerifier
        /// The file as it was before the last attempt to read it, even if that failed, so that a failure is reported once.
        var stamp: FileStamp?
    }

    /// Reads the file; blocks for as long as that takes.
    ///
    /// - Parameters:
    ///   - path: A file with a JWK set; links are followed.
    ///   - rules: What tokens have to be.
    package init(_ path: String, rules: JWTRules) throws(JWTKeyFileError) {
        state = Mutex(try Self.state(path, rules))
    }

    /// The current verifier.
    ///
    /// It stays valid when the file changes, with the keys that it has.
    package var verifier: JWTVerifier { state.withLock(\.verifier) }

    // MARK: - Changes of the file

    /// Whether the file was written or replaced since the last attempt to read it, successful or not; costs a stat(2).
    package var fileHasChanged: Bool {
        let (path, stamp) = state.withLock { ($0.path, $0.stamp) }
        return FileStamp(path: path) != stamp
    }

    /// Reads the file again if it has changed; blocks for as long as that takes, and must not run on a loop.
    ///
    /// After an error the previous keys stay in use, and the next attempt is made when the file changes again: each error is
    /// thrown once.
    ///
    /// - Returns: The new keys; nil if the file has not changed.
    package func reloadIfChanged() throws(JWTKeyFileError) -> JWTKeySet? {
        guard fileHasChanged else { return nil }
        let (path, rules) = state.withLock { ($0.path, $0.verifier.rules) }
        let reading = try read(path, rules: rules)
        // If the settings have named another file or other rules in the meantime, those stay in use.
        let isUsed = state.withLock { state in
            guard state.path == path, state.verifier.rules == rules else { return false }
            state = reading.state
            return true
        }
        return isUsed ? reading.keys : nil
    }

    // MARK: - Changes of the settings

    /// A file that was read and is not used yet.
    package struct Reading: Sendable {
        fileprivate let state: State

        package var keys: JWTKeySet { state.verifier.keys }
    }

    /// Reads a file without using it yet; blocks for as long as that takes.
    package func read(_ path: String, rules: JWTRules) throws(JWTKeyFileError) -> Reading {
        // Before reading, so that a change in between is noticed.
        let stamp = FileStamp(path: path)
        do throws(JWTKeyFileError) {
            return Reading(state: try Self.state(path, rules))
        } catch {
            state.withLock { if $0.path == path { $0.stamp = stamp } }
            throw error
        }
    }

    /// Uses what was read from now on.
    package func use(_ reading: Reading) {
        state.withLock { $0 = reading.state }
    }

    // MARK: - Reading

    private static func state(_ path: String, _ rules: JWTRules) throws(JWTKeyFileError) -> State {
        let stamp = FileStamp(path: path)
        let text = try contents(of: path)
        do throws(JWTKeyError) {
            let keys = try JWTKeySet(parsing: text.span, algorithms: rules.algorithms)
            return State(path: path, verifier: JWTVerifier(rules: rules, keys: keys), stamp: stamp)
        } catch {
            throw JWTKeyFileError(file: path, problem: .unusable(error))
        }
    }

    private static func contents(of path: String) throws(JWTKeyFileError) -> [UInt8] {
        let text: [UInt8]
        do throws(SystemError) {
            // Does not wait for the writer of a pipe.
            let descriptor = try FileDescriptor(opening: path, O_RDONLY | O_NONBLOCK)
            text = try BlockingIO.read(from: descriptor.number, limit: sizeLimit + 1)
        } catch {
            throw JWTKeyFileError(file: path, problem: .unreadable(error))
        }
        guard text.count <= sizeLimit else { throw JWTKeyFileError(file: path, problem: .tooLarge) }
        return text
    }
}
