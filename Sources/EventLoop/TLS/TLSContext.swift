internal import Synchronization
internal import System

/// What the TLS connections of all listeners share: certificates, keys, rules.
///
/// Any thread. Connections keep the certificates that they began with, and end when the authorities that their clients were
/// verified by are replaced; apart from that, a reload affects later connections.
package final class TLSContext: Sendable {
    private let state: Mutex<State>
    private let applicationProtocols: [String]
    /// Of the authorities in use, for a look without the mutex.
    private let authoritiesNumber: Atomic<Int>

    fileprivate struct State: Sendable {
        var files: TLSFiles
        var credentials: TLSCredentials
        /// The files as they were before the last attempt to read them, even if it failed, so that a failure is reported once.
        var stamps: [FileStamp?]
    }

    /// The TLS library's version, for example `3.0.22`.
    package static var libraryVersion: String { TLSCredentials.libraryVersion }

    /// Reads a certificate and its key as a listener does, without using them; blocks for as long as that takes.
    package static func examine(_ pair: TLSFiles.Pair) throws(TLSConfigurationError) -> TLSCertificate {
        try TLSServerContext(pair, nil, applicationProtocols: []).certificate(from: pair.certificateChain)
    }

    /// Reads the authorities for clients' certificates as a listener does, without using them.
    package static func examine(authorities path: String) throws(TLSConfigurationError) -> TLSClientAuthorities {
        try TLSAuthorities(file: path).summary
    }

    /// Reads the files; blocks for as long as that takes.
    ///
    /// - Parameters:
    ///   - files: What to read.
    ///   - applicationProtocols: The names of the protocols that are spoken over TLS, for clients that ask (ALPN, RFC 7301),
    ///     the preferred one first. A client that offers only others is refused.
    package init(_ files: TLSFiles, applicationProtocols: [String]) throws(TLSConfigurationError) {
        // Before reading, so that a change in between is noticed.
        let stamps = files.stamps
        let credentials = try TLSCredentials(files, applicationProtocols)
        state = Mutex(State(files: files, credentials: credentials, stamps: stamps))
        authoritiesNumber = Atomic(credentials.authoritiesNumber)
        self.applicationProtocols = applicationProtocols
    }

    /// Files that were read and are not used yet.
    package struct Reading: Sendable {
        fileprivate let state: State
    }

    /// Reads the files again, for connections that begin from now on; after an error nothing changes.
    ///
    /// Session tickets are encrypted with a key that each reading of the files makes anew; a client with an older ticket does a
    /// full handshake. Called once a day even without a change, this limits what a stolen ticket key can decrypt.
    /// Blocks for as long as reading takes.
    package func reload() throws(TLSConfigurationError) {
        let reading = try read(state.withLock(\.files))
        // If the settings have named other files in the meantime, those stay in use.
        state.withLock { if $0.files == reading.state.files { use(reading.state, in: &$0) } }
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
        state.withLock { use(reading.state, in: &$0) }
    }

    private func use(_ new: State, in state: inout State) {
        state = new
        authoritiesNumber.store(new.credentials.authoritiesNumber, ordering: .relaxed)
    }

    /// Whether a file was written or replaced since the last attempt to read it, successful or not.
    ///
    /// Costs a stat(2) for each file. Files that are replaced one after the other may not match in between; after a failed
    /// reload the next change leads to another.
    package var filesHaveChanged: Bool {
        let (files, stamps) = state.withLock { ($0.files, $0.stamps) }
        return files.stamps != stamps
    }

    /// The certificates in use, in the order of the files.
    package var certificates: [TLSCertificate] { credentials.certificates }

    /// When the first of the certificates in use expires, in seconds since 1970.
    package var earliestExpiry: Int64 { certificates.map(\.expiry).min() ?? 0 }

    /// The authorities for clients' certificates that are in use; nil if no client shows one.
    package var clientAuthorities: TLSClientAuthorities? { credentials.clientAuthorities }

    /// Whether clients whose certificates these authorities have verified are still let in.
    @inline(__always)
    func trusts(authorities number: Int) -> Bool { authoritiesNumber.load(ordering: .relaxed) == number }

    /// For a connection that begins now.
    var credentials: TLSCredentials { state.withLock(\.credentials) }
}
