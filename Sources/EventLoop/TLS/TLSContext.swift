internal import COpenSSL
internal import Synchronization

/// What the TLS connections of a listener share: certificates, keys, rules.
///
/// Any thread. Connections keep the certificates that they began with; a reload is for those that begin after it.
package final class TLSContext: Sendable {
    private let files: TLSFiles
    private let state: Mutex<State>

    private struct State {
        var certificates: TLSCertificates
        /// The files as they were before the last attempt to read them, also one that failed: it is reported once.
        var stamps: [FileStamp?]
    }

    /// OpenSSL's version, for example `OpenSSL 3.0.22 25 Aug 2026`.
    package static var libraryVersion: String { unsafe String(cString: OpenSSL_version(OPENSSL_VERSION)) }

    /// Reads the files; blocks for as long as that takes.
    package init(_ files: TLSFiles) throws(TLSConfigurationError) {
        self.files = files
        // Before reading: what changes meanwhile counts as a change.
        let stamps = files.stamps
        state = Mutex(State(certificates: try TLSCertificates(files), stamps: stamps))
    }

    /// Reads the files again, for connections that begin from now on; on an error all stays as it was.
    ///
    /// Session tickets are sealed with a key that lives as long as one reading of the files: older tickets then lead to
    /// a full handshake. Called once a day even without a change it bounds what a stolen ticket key opens.
    /// Blocks for as long as reading takes.
    package func reload() throws(TLSConfigurationError) {
        let stamps = files.stamps
        do throws(TLSConfigurationError) {
            let certificates = try TLSCertificates(files)
            state.withLock { $0 = State(certificates: certificates, stamps: stamps) }
        } catch {
            state.withLock { $0.stamps = stamps }
            throw error
        }
    }

    /// Whether a file was written or replaced since the last attempt to read it, successful or not.
    ///
    /// Costs a stat(2) a file. Files that are written one after the other can look wrong in between: a failed reload is
    /// followed by another change.
    package var filesHaveChanged: Bool {
        files.stamps != state.withLock(\.stamps)
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
