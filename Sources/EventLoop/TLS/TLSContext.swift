internal import COpenSSL
internal import Synchronization
internal import System

/// What the TLS connections of a listener share: certificates, keys, rules.
///
/// Any thread. Connections keep the certificates that they began with; a reload is for those that begin after it.
package final class TLSContext: Sendable {
    private let state: Mutex<State>

    fileprivate struct State: Sendable {
        var files: TLSFiles
        var certificates: TLSCertificates
        /// The files as they were before the last attempt to read them, also one that failed: it is reported once.
        var stamps: [FileStamp?]
    }

    /// OpenSSL's version, for example `3.0.22`.
    package static var libraryVersion: String { unsafe String(cString: OpenSSL_version(OPENSSL_VERSION_STRING)) }

    /// Reads the files; blocks for as long as that takes.
    package init(_ files: TLSFiles) throws(TLSConfigurationError) {
        // Before reading: what changes meanwhile counts as a change.
        let stamps = files.stamps
        state = Mutex(State(files: files, certificates: try TLSCertificates(files), stamps: stamps))
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
            return Reading(state: State(files: files, certificates: try TLSCertificates(files), stamps: stamps))
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

    /// When the first of the certificates in use expires, in seconds since 1970.
    package var earliestExpiry: Int64 {
        state.withLock(\.certificates).earliestExpiry
    }

    /// The certificates for a connection that begins now.
    var certificates: TLSCertificates {
        state.withLock(\.certificates)
    }
}
