import Synchronization

/// The contents of files that are read again when they change; while they cannot be used, the former contents stay in use.
///
/// Any thread may look at the contents. Readings must run one after the other, so that the latest contents are in use.
package final class WatchedFiles<Names: Hashable & Sendable, Content: Sendable, Failure: Error>: Sendable {
    private let paths: @Sendable (Names) -> [String]
    private let load: @Sendable (Names) throws(Failure) -> Content
    private let didUse: @Sendable (Content) -> Void
    private let state: Mutex<State>

    /// The contents of files, which need not be in use yet.
    package struct Reading: Sendable {
        fileprivate let names: Names
        /// The state of the files before they were read, so that a change in the meantime is noticed.
        ///
        /// Links are followed: renewing a certificate often only points a link elsewhere.
        fileprivate let states: [FileStatus?]
        fileprivate let content: Content
    }

    private struct State {
        var used: Reading
        /// Why the last reading of these files failed; nil if it succeeded.
        var fault: Failure?
    }

    /// Reads the files; blocks for as long as that takes.
    ///
    /// - Parameters:
    ///   - names: As configured; links are followed.
    ///   - paths: The paths of the files.
    ///   - read: Reads the files.
    ///   - didUse: Called under a lock when contents come into use.
    package init(
        _ names: Names, paths: @escaping @Sendable (Names) -> [String],
        _ read: @escaping @Sendable (Names) throws(Failure) -> Content,
        didUse: @escaping @Sendable (Content) -> Void = { _ in }
    ) throws(Failure) {
        let reading = Reading(names: names, states: Self.states(paths(names)), content: try read(names))
        didUse(reading.content)
        state = Mutex(State(used: reading))
        self.paths = paths
        load = read
        self.didUse = didUse
    }

    /// The contents in use.
    package var content: Content { state.withLock(\.used.content) }

    package var names: Names { state.withLock(\.used.names) }

    /// Why the files could not be used when they were last read; nil if they are in use.
    package var fault: Failure? { state.withLock(\.fault) }

    /// Whether a file has changed since the contents in use were read, or the last reading failed: the reason may have passed,
    /// and files that are replaced one after the other may not match in between.
    ///
    /// Costs a stat(2) for each file.
    package var haveChanged: Bool {
        let (used, fault) = state.withLock { ($0.used, $0.fault) }
        return fault != nil || Self.states(paths(used.names)) != used.states
    }

    /// Reads the files again and uses their contents; blocks for as long as that takes, and must not run on a loop.
    package func reload() throws(Failure) { use(try read(names)) }

    /// Reads files without using them yet; blocks for as long as that takes.
    package func read(_ names: Names) throws(Failure) -> Reading {
        let states = Self.states(paths(names))
        do {
            return Reading(names: names, states: states, content: try load(names))
        } catch {
            state.withLock { if $0.used.names == names { $0.fault = error } }
            throw error
        }
    }

    /// Uses what was read.
    package func use(_ reading: Reading) {
        state.withLock { state in
            state = State(used: reading)
            didUse(reading.content)
        }
    }

    private static func states(_ paths: [String]) -> [FileStatus?] { paths.map { FileStatus($0) } }
}

extension WatchedFiles where Names == String {
    /// Watches one file.
    package convenience init(
        _ path: String, _ read: @escaping @Sendable (_ path: String) throws(Failure) -> Content
    ) throws(Failure) {
        try self.init(path, paths: { [$0] }, read)
    }
}
