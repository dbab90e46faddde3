public import Foundation

extension TokenSession {
    /// Where a session is in its life: the states of the SDK (`FBSessionState`), with only its transitions.
    ///
    /// Besides, a login that is cancelled leads back to `created`, and so does opening again after the end.
    public enum State: String, Sendable, Hashable, CaseIterable {
        /// From the beginning: it is not known yet whether there is a cached token.
        case created
        /// A cached token was found and accepted, and the session has not been opened yet.
        case createdTokenLoaded
        /// The user is logging in.
        case createdOpening
        /// There is a token, from the cache or from a login.
        case open
        /// There is a token, and it has been replaced by another one at least once.
        case openTokenExtended
        /// The login failed, or the session was closed before it was open.
        case closedLoginFailed
        /// The session was closed.
        case closed

        /// Whether there is a token.
        public var isOpen: Bool { self == .open || self == .openTokenExtended }

        /// Whether the session has ended, and can be opened again.
        public var isClosed: Bool { self == .closed || self == .closedLoginFailed }

        /// The states that may follow.
        var successors: Set<State> {
            switch self {
            case .created: [.createdTokenLoaded, .createdOpening, .closedLoginFailed]
            case .createdTokenLoaded: [.open, .closedLoginFailed]
            case .createdOpening: [.open, .closedLoginFailed, .created]
            case .open, .openTokenExtended: [.openTokenExtended, .closed]
            case .closedLoginFailed, .closed: [.created]
            }
        }
    }

    /// What happens beside the states, with its values.
    public enum Event: Sendable {
        /// The token was replaced: by a refresh, or by one that another session or device has stored.
        case renewed(TokenInformation)
        /// A refresh failed; the token stays.
        case refreshFailed(any Error)
        /// The token could not be cached, and it is tried again; or the server refuses this device, for example as its session
        /// was revoked (`TokenCacheError.unauthorized`), and it is tried again when something changes.
        case cachingFailed(any Error)
        /// The session has ended.
        case ended(Ending)
    }

    /// Why a session has ended.
    public enum Ending: Sendable, Hashable {
        /// By `close()`; the token is still in the cache.
        case closed
        /// By `signOut(then:)`.
        case signedOut
        /// The user has signed out on another device, or the app's server has removed the token.
        case signedOutElsewhere
    }
}

/// Why a session cannot do what it was asked for.
public enum TokenSessionError: Error, Sendable, Hashable {
    /// There is no token, because the session is not open.
    case notOpen(TokenSession.State)
    /// The session was closed meanwhile: here, or by a sign-out on another device.
    case closed
    /// The token has expired or was refused, and there was nothing to refresh it by.
    case expired
    /// The login or the refresh brought a blank token.
    case blankToken
}

extension TokenSessionError: CustomStringConvertible, LocalizedError {
    /// A sentence for logs.
    public var description: String {
        switch self {
        case .notOpen(let state): "the session is \(state), so there is no token"
        case .closed: "the session was closed meanwhile"
        case .expired: "the token has expired or was refused, and there is nothing to refresh it by"
        case .blankToken: "the login or the refresh brought a blank token"
        }
    }

    /// A sentence for logs.
    public var errorDescription: String? { description }
}

/// The state of a session with its token, told to any number of listeners.
final class SessionBroadcast: Sendable {
    private struct Listeners {
        var state = TokenSession.State.created
        var information: TokenInformation?
        var states: [Int: AsyncStream<TokenSession.State>.Continuation] = [:]
        var events: [Int: AsyncStream<TokenSession.Event>.Continuation] = [:]
        var next = 0
    }

    private let listeners = Locked(Listeners())

    deinit {
        let (states, events) = listeners.withLock { ($0.states.values, $0.events.values) }
        for continuation in states { continuation.finish() }
        for continuation in events { continuation.finish() }
    }

    var state: TokenSession.State { listeners.withLock { $0.state } }

    var information: TokenInformation? { listeners.withLock { $0.information } }

    /// The present state and all that follow.
    ///
    /// A listener that is slow loses the earliest of more than 16 states that it has not read.
    func states() -> AsyncStream<TokenSession.State> {
        stream(\.states, newest: 16) { $0.state }
    }

    /// All events from now on, of which a listener that is slow loses the earliest of more than 64.
    func events() -> AsyncStream<TokenSession.Event> {
        stream(\.events, newest: 64) { _ in nil }
    }

    private func stream<Element: Sendable>(
        _ streams: any WritableKeyPath<Listeners, [Int: AsyncStream<Element>.Continuation]> & Sendable,
        newest count: Int, first: (Listeners) -> Element?
    ) -> AsyncStream<Element> {
        AsyncStream(bufferingPolicy: .bufferingNewest(count)) { continuation in
            let number = listeners.withLock { listeners in
                // Inside the lock, so that no state is lost or comes twice. Nothing is resumed: nobody listens yet.
                if let element = first(listeners) { continuation.yield(element) }
                listeners.next += 1
                listeners[keyPath: streams][listeners.next] = continuation
                return listeners.next
            }
            continuation.onTermination = { [weak self] _ in
                self?.listeners.withLock { $0[keyPath: streams][number] = nil }
            }
        }
    }

    /// Goes on to a state, which must be a successor of the present one.
    ///
    /// Only the session calls it, from its own actor, so states are told in their order.
    ///
    /// - Parameter information: The token in that state.
    func move(to next: TokenSession.State, _ information: TokenInformation? = nil) {
        let continuations = listeners.withLock { listeners in
            precondition(
                listeners.state.successors.contains(next), "a session cannot go from \(listeners.state) to \(next)")
            listeners.state = next
            listeners.information = information
            return Array(listeners.states.values)
        }
        for continuation in continuations { continuation.yield(next) }
    }

    func tell(_ event: TokenSession.Event) {
        for continuation in listeners.withLock({ Array($0.events.values) }) { continuation.yield(event) }
    }
}
