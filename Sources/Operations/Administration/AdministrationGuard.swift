internal import Cryptography
internal import Glibc
internal import HTTP
internal import Server
internal import Settings
internal import TokenService

/// Decides whether a request to the administration is answered.
///
/// Belongs to the administration's thread.
struct AdministrationGuard: Sendable {
    private let server: Server

    init(_ server: Server) {
        self.server = server
    }

    enum Decision {
        case admitted(Admission)
        case refused(AdministrationAnswer)
    }

    /// A request that is answered.
    struct Admission {
        let requester: Requester
        /// Whether the requester may read the server's state.
        let mayRead: Bool
        /// The key that was shown over TCP.
        var key: AdminKey?

        /// The answer to `/key`; a requester who needs no key may do everything.
        var reply: KeyReply {
            guard let key else { return KeyReply(name: "\(requester)", scope: AdminScope.steer.rawValue) }
            return KeyReply(name: key.name, scope: (key.permits(.steer) ? AdminScope.steer : .read).rawValue)
        }
    }

    func decide(
        _ request: AdministrationStream.Received, to endpoint: AdministrationEndpoint, from requester: Requester
    ) -> Decision {
        guard endpoint.methods.contains(request.method) else {
            let allowed = endpoint.methods.joined(separator: ", ")
            var answer = AdministrationAnswer.error(.methodNotAllowed, "the method of this path is \(allowed)")
            answer.fields = ["Allow: \(allowed)"]
            return .refused(answer)
        }
        // Whoever reaches the control socket needs no key, so no page may do it there, not even the server's own.
        let isForeign = if case .network = requester { request.isFromForeignPage } else { request.isFromPage }
        if endpoint.isAction && isForeign {
            let fault =
                "a page of another site must not do this: it is for programs that send no Origin, and for the status page"
            return .refused(.error(.forbidden, fault))
        }
        guard case .network(let address) = requester else {
            return .admitted(Admission(requester: requester, mayRead: true))
        }
        return decide(request, to: endpoint, from: address)
    }

    /// Decides on a request over TCP.
    private func decide(
        _ request: AdministrationStream.Received, to endpoint: AdministrationEndpoint, from address: IPAddress?
    ) -> Decision {
        let isOpen = server.settingsInForce.admin.read == .open
        let requirement = endpoint.requirement
        if isOpen && (requirement == .nothing || requirement == .reading) {
            return .admitted(Admission(requester: .network(address), mayRead: true))
        }
        let refusal: AdminRefusal
        switch find(request.credential) {
        case .success(let key):
            if requirement != .steering || key.permits(.steer) {
                let requester = Requester.admin(key: key.name, address: address)
                return .admitted(Admission(requester: requester, mayRead: true, key: key))
            }
            refusal = .scope
        case .failure(let found): refusal = found.refusal
        }
        if requirement == .nothing {
            // A probe with a removed key is still answered, but the answer tells nothing that would help to guess keys.
            if refusal != .missing { server.access.admin.note(refusal, from: address) }
            return .admitted(Admission(requester: .network(address), mayRead: false))
        }
        server.access.admin.note(refusal, from: address)
        return .refused(AdministrationRefusals.answer(refusal, to: endpoint, server.settingsInForce))
    }

    private struct NotFound: Error {
        let refusal: AdminRefusal
    }

    private func find(_ credential: AdministrationStream.Credential) -> Result<AdminKey, NotFound> {
        func failure(_ refusal: AdminRefusal) -> Result<AdminKey, NotFound> { .failure(NotFound(refusal: refusal)) }
        guard let keys = server.access.admin.keys else { return failure(.disabled) }
        switch credential {
        case .none: return failure(.missing)
        case .malformed: return failure(.malformed)
        case .bearer(let secret):
            // Hashing fails only without memory.
            switch try? keys.find(secret.span, at: Int64(time(nil))) {
            case .found(let key): return .success(key)
            case .expired: return failure(.expired)
            case .unknown, nil: return failure(.unknown)
            }
        }
    }
}
