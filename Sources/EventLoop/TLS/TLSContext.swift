internal import Synchronization
internal import System

/// What the TLS connections of a listener share: certificates, keys, rules.
///
/// Any thread. Connections keep the certificates that they began with; a reload is for those that begin after it.
package final class TLSContext: Sendable {
    private let state: Mutex<State>
    private let applicationProtocols: [String]

    fileprivate struct State: Sendable {
        var files: TLSFiles
        var credentials: TLSCredentials
        /// The files as they were before the last attempt to read them, also one that failed: it is reported once.
        var stamps: [FileStamp?]
    }

    /// Reads the files; blocks for as long as that takes.
    ///
    /// - Parameters:
    ///   - files: What to read.
    ///   - applicationProtocols: The names of the protocols that are spoken over TLS, for clients that ask (ALPN, RFC 7301),
    ///     the preferred one first. A client that offers only others is refused.
    package init(_ files: TLSFiles, applicationProtocols: [String]) throws(TLSConfigurationError) {
        // Before reading: what changes meanwhile counts as a change.
        let stamps = files.stamps
        let credentials = try TLSCredentials(files, applicationProtocols)
        state = Mutex(State(files: files, credentials: credentials, stamps: stamps))
        self.applicationProtocols = applicationProtocols
    }

    /// What was read, before it is used.
    package struct Reading: Sendable {
        fileprivate let state: State
    }

    /// Reads the files again, for connections that begin from now on; on an error all stays as it was.
    ///
    /// Session tickets are sealed with a key that lives as long as one reading of the files: older tickets then lead to
    /// a full handshake. Called once a day even without a change it bounds what a stolen ticket key opens.
    /// Blocks for as long as reading takes.
    package func reload() throws(TLSConfigurationError) {
        let reading = try read(state.withLock(\.files))
        // Meanwhile others may have been named, and read.
        state.withLock { if $0.files == reading.state.files { $0 = reading.state } }
    }

    /// Reads files without using them yet; blocks for as long as that takes.
    package func read(_ files: TLSFiles) throws(TLSConfigurationError) -> Reading {
        let stamps = files.stamps
        do throws(TLSConfigurationError) {
            return Reading(
                state: State(files: files, credentials: try TLSCredentials(files, applicationProtocols), stamps: stamps)
            )
        } catch {
            state.withLock { if $0.files == files { $0.stamps = stamps } }
            throw error
        }
    }

    /// Uses what was read for connections that begin from now on.
    package func use(_ reading: Reading) {
        state.withLock { $0 = reading.state }
    }

    /// Whether a file was written or replaced since the last attempt to read it, successful or not.
    ///
    /// Costs a stat(2) a file. Files that are written one after the other can look wrong in between: a failed reload is
    /// followed by another change.
    package var filesHaveChanged: Bool {
        let (files, stamps) = state.withLock { ($0.files, $0.stamps) }
        return files.stamps != stamps
    }

    /// The certificates in use, in the order of the files.
    package var certificates: [TLSCertificate] { credentials.certificates }

    /// When the first of the certificates in use expires, in seconds since 1970.
    package var earliestExpiry: Int64 { certificates.map(\.expiry).min() ?? 0 }

    /// What a connection uses that begins now.
    var credentials: TLSCredentials { state.withLock(\.credentials) }
}
