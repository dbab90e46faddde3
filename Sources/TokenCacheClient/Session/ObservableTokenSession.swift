#if canImport(Observation)
public import Observation

/// A session for SwiftUI: the state and the token, on the main actor.
@available(iOS 17, macOS 14, tvOS 17, watchOS 10, visionOS 1, *)
@MainActor @Observable public final class ObservableTokenSession {
    /// The session itself, to open it, to refresh its token, and to sign out.
    public let session: TokenSession
    /// The present state.
    public private(set) var state: TokenSession.State
    /// The token of an open session, or the one that was loaded.
    public private(set) var currentToken: TokenInformation?

    /// Follows a session for as long as both exist.
    public init(_ session: TokenSession) {
        self.session = session
        state = session.state
        currentToken = session.currentToken
        let states = session.states
        // The task keeps neither object alive, and ends with the session.
        Task { [weak self, weak session] in
            for await state in states {
                guard let self, let session else { return }
                self.state = state
                currentToken = session.currentToken
            }
        }
    }
}
#endif
