public import Foundation

extension Session {
    /// Where a session is in its life: the states of the SDK (`FBSessionState`), with only its transitions.
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
        /// The login failed, or the session was closed before it was open. Final.
        case closedLoginFailed
        /// The session was closed. Final.
        case closed

        /// Whether there is a token.
        public var isOpen: Bool { self == .open || self == .openTokenExtended }

        /// Whether nothing can follow.
        public var isFinal: Bool { self == .closed || self == .closedLoginFailed }

        /// The states that may follow.
        var successors: Set<State> {
            switch self {
            case .created: [.createdTokenLoaded, .createdOpening, .closedLoginFailed]
            case .createdTokenLoaded, .createdOpening: [.open, .closedLoginFailed]
            case .open, .openTokenExtended: [.openTokenExtended, .closed]
            case .closedLoginFailed, .closed: []
            }
        }
    }
}

/// Why a session cannot do what it was asked for.
public enum SessionError: Error, Sendable, Hashable {
    /// Only a new session can be opened, and only once at a time.
    case cannotOpen(Session.State)
    /// There is no token, because the session is not open.
    case notOpen(Session.State)
    /// The session was closed meanwhile: here, or by a sign-out on another device.
    case closed
    /// The token has expired, and there was nothing to refresh it by.
    case expired
    /// The login or the refresh brought a blank token.
    case blankToken
}

extension SessionError: CustomStringConvertible, LocalizedError {
    /// A sentence for logs.
    public var description: String {
        switch self {
        case .cannotOpen(let state): "a session that is \(state) or just being opened cannot be opened; make a new one"
        case .notOpen(let state): "the session is \(state), so there is no token"
        case .closed: "the session was closed meanwhile"
        case .expired: "the token has expired, and there is nothing to refresh it by"
        case .blankToken: "the login or the refresh brought a blank token"
        }
    }

    /// A sentence for logs.
    public var errorDescription: String? { description }
}

/// The state of a session, told to any number of listeners.
final class StateBroadcast: Sendable {
    private struct Listeners {
        var state = Session.State.created
        var continuations: [Int: AsyncStream<Session.State>.Continuation] = [:]
        var next = 0
    }

    private let listeners = Locked(Listeners())

    deinit {
        for continuation in listeners.withLock({ $0.continuations.values }) { continuation.finish() }
    }

    var state: Session.State { listeners.withLock { $0.state } }

    /// The present state and all that follow, up to a final one.
    ///
    /// A listener that is slow loses the earliest of more than 16 states that it has not read.
    func states() -> AsyncStream<Session.State> {
        AsyncStream(bufferingPolicy: .bufferingNewest(16)) { continuation in
            let number = listeners.withLock { listeners -> Int? in
                // Inside the lock, so that no state is lost or comes twice. Nothing is resumed: nobody listens yet.
                continuation.yield(listeners.state)
                guard !listeners.state.isFinal else { return nil }
                listeners.next += 1
                listeners.continuations[listeners.next] = continuation
                return listeners.next
            }
            guard let number else {
                continuation.finish()
                return
            }
            continuation.onTermination = { [weak self] _ in
                self?.listeners.withLock { $0.continuations[number] = nil }
            }
        }
    }

    /// Goes on to a state, which must be a successor of the present one.
    ///
    /// Only the session calls it, from its own actor, so states are told in their order.
    func move(to next: Session.State) {
        let continuations = listeners.withLock { listeners in
            precondition(
                listeners.state.successors.contains(next), "a session cannot go from \(listeners.state) to \(next)")
            listeners.state = next
            defer { if next.isFinal { listeners.continuations = [:] } }
            return Array(listeners.continuations.values)
        }
        for continuation in continuations {
            continuation.yield(next)
            if next.isFinal { continuation.finish() }
        }
    }
}
