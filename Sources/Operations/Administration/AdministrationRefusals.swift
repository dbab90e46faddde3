internal import HTTP
internal import Server
internal import Settings

/// The answers to requests over TCP that show no admin key that is good for them.
enum AdministrationRefusals {
    /// - Parameters:
    ///   - endpoint: What was requested.
    ///   - settings: Those in force.
    static func answer(
        _ refusal: AdminRefusal, to endpoint: AdministrationEndpoint, _ settings: Settings
    ) -> AdministrationAnswer {
        let fault = text(refusal, endpoint, settings)
        // Without keys, none would help; only the question for the key itself is always answered as one for a credential.
        if refusal == .disabled && endpoint != .key { return .error(.forbidden, fault) }
        var answer = AdministrationAnswer.error(refusal == .scope ? .forbidden : .unauthorized, fault)
        answer.fields = ["WWW-Authenticate: \(challenge(refusal))"]
        return answer
    }

    /// The challenge (RFC 6750, section 3).
    private static func challenge(_ refusal: AdminRefusal) -> String {
        switch refusal {
        case .disabled, .missing: "Bearer"
        case .malformed, .unknown, .expired: #"Bearer error="invalid_token""#
        case .scope: #"Bearer error="insufficient_scope""#
        }
    }

    private static func text(
        _ refusal: AdminRefusal, _ endpoint: AdministrationEndpoint, _ settings: Settings
    ) -> String {
        switch refusal {
        case .disabled:
            """
            without admin keys this is not allowed over TCP, where every user of this machine could request it; \
            \(onControlSocket(endpoint, settings)), or set admin.keys_file and make a key with token-cache admin keys add
            """
        case .missing:
            """
            this needs an admin key\(endpoint.isAction ? " with the scope steer" : "") in the header Authorization: Bearer \
            KEY; make one with token-cache admin keys add, or \(onControlSocket(endpoint, settings))
            """
        case .malformed:
            "the header Authorization has to be Bearer and one admin key, as token-cache admin keys add prints it"
        case .unknown:
            """
            the server does not know this admin key; it may have been removed or belong to another server: \
            token-cache admin keys list shows the names of those there are
            """
        case .expired: "the admin key has expired; make a new one with token-cache admin keys add"
        case .scope: "the admin key has only the scope read, and this needs the scope steer; make another key for it"
        }
    }

    /// Says how to do the same without a key.
    private static func onControlSocket(_ endpoint: AdministrationEndpoint, _ settings: Settings) -> String {
        let (path, socket) = (endpoint.rawValue, ControlSocketAddress.path(settings))
        let curl =
            "curl \(endpoint.isAction ? "-X POST " : "")--unix-socket \(socket) http://localhost\(path)"
        let command = endpoint == .reload || endpoint == .drain ? "token-cache \(path.dropFirst()) or " : ""
        return "use \(command)\(curl), as a user with access to that socket"
    }
}
