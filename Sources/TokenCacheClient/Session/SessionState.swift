public import Foundation

extension TokenSession {
    /// The state of a session: the states of the SDK (`FBSessionState`), and its transitions.
    ///
    /// In addition, a cancelled login leads back to `created`, and so does opening a session again after its end.
    public enum State: String, Sendable, Hashable, CaseIterable {
        /// The first state: it is not known yet whether there is a cached token.
        case created
        /// A cached token was found and accepted, and the session has not been opened yet.
        case createdTokenLoaded
        /// The user is logging in.
        case createdOpening
        /// There is a token, from the cache or from a login.
        case open
        /// There is a token, which has replaced another one since the session was opened.
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

    /// Something that happened, in addition to changes of the state.
    ///
    /// Later versions may have more cases.
    public enum Event: Sendable {
        /// The login has failed, or has brought a blank token; none if the user has given up.
        case loginFailed(any Error)
        /// The token was replaced by a refresh, or by the token of another session or device.
        case renewed(TokenInformation)
        /// The cached token, which may be another device's, lacks these required permissions: it is not used, and stays in the cache.
        case permissionsMissing(Set<String>)
        /// A refresh failed; the token stays.
        case refreshFailed(any Error)
        /// The token could not be cached, which is tried again; or the server refuses this device, for example because its session
        /// was revoked (`TokenCacheError.unauthorized`), which is tried again when something changes; or the app's own closure
        /// throws this in place of a session.
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
    /// The session is not open, so there is no token.
    case notOpen(TokenSession.State)
    /// The session was closed meanwhile: here, or by a sign-out on another device.
    case closed
    /// The token has expired or was refused, and the call had no `refresh`.
    case expired
    /// The login or the refresh brought a blank token.
    case blankToken
    /// Facebook's Limited Login has brought an ID token, which no API takes and no device can share.
    case limitedLogin
    /// The user was asked for more, and has logged in as another user; the session keeps its token.
    case otherUser
    /// The provider has refused a refresh for good, so the user has to log in again: thrown by a `Refresh` for the error
    /// `invalid_grant` of OAuth in JSON (RFC 6749, section 5.2), and for no other, also not for status 400 alone.
    ///
    /// The session throws it only if no other device has refreshed the token. It stays open.
    case invalidGrant
}

extension TokenSession {
    /// A call of `open` or `load` that is under way.
    struct Opening: Sendable {
        let outcome: Outcome<State>
        /// The end of the search for a token, before the user is asked; fails if that failed and the user is not asked.
        let search: Outcome<Void>
        let task: Task<Void, Never>
        /// Whether the user is asked if no token is found.
        let asks: Bool
    }
}

extension TokenSessionError: CustomStringConvertible, LocalizedError {
    /// A sentence for logs.
    public var description: String {
        switch self {
        case .notOpen(let state): "the session is not open (it is \(state)), so there is no token"
        case .closed: "the session was closed meanwhile"
        case .expired: "the token has expired or was refused, and there is nothing to refresh it by"
        case .blankToken: "the login or the refresh brought a blank token"
        case .limitedLogin: "the login was a limited one, which brings no access token"
        case .otherUser: "the user was asked for more, and has logged in as another user"
        case .invalidGrant: "the provider has refused the refresh for good (invalid_grant), so the user has to log in"
        }
    }

    /// A sentence for logs.
    public var errorDescription: String? { description }
}

extension TokenInformation {
    /// Refuses what is no token to cache.
    func check() throws(TokenSessionError) {
        if !token.contains(where: { !$0.isWhitespace }) { throw .blankToken }
        if isOfLimitedLogin { throw .limitedLogin }
    }
}

/// The state and the token of a session, reported to any number of listeners.
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
    /// A slow listener loses the earliest states if it has more than 16 unread ones.
    func states() -> AsyncStream<TokenSession.State> {
        stream(\.states, newest: 16) { $0.state }
    }

    /// All events from now on; a slow listener loses the earliest ones if it has more than 64 unread.
    func events() -> AsyncStream<TokenSession.Event> {
        stream(\.events, newest: 64) { _ in nil }
    }

    private func stream<Element: Sendable>(
        _ streams: any WritableKeyPath<Listeners, [Int: AsyncStream<Element>.Continuation]> & Sendable,
        newest count: Int, first: (Listeners) -> Element?
    ) -> AsyncStream<Element> {
        AsyncStream(bufferingPolicy: .bufferingNewest(count)) { continuation in
            let number = listeners.withLock { listeners in
                // Inside the lock, so that no state is lost or comes twice. Nobody listens yet, so no task is resumed.
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

    /// Changes the state to a successor of the present one.
    ///
    /// Only the session calls it, on its own actor, so that listeners get the states in order.
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
