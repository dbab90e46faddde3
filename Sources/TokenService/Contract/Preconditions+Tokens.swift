import HTTP
import TokenStore

extension Preconditions {
    /// What must hold for a write; nil if the request has both fields, which would need two comparisons.
    var writeMatch: WriteCondition.Match? {
        switch (match, noneMatch) {
        case (nil, nil): .any
        case (.any?, nil): .exists
        // Only strong tags are compared for equality with If-Match (RFC 9110, section 13.1.1).
        case (.tags(let tags)?, nil): .oneOf(tags.filter { !$0.isWeak }.compactMap(\.version))
        case (nil, .any?): .missing
        case (nil, .tags(let tags)?): .noneOf(tags.compactMap(\.version))
        case (_?, _?): nil
        }
    }

    /// The answer to a GET, if the preconditions allow it (RFC 9110, section 13.2.2).
    ///
    /// They count only for a request that would succeed without them (section 13.2.1): a refusal stays as it is.
    func applied(to response: Response) -> Response {
        guard response.outcome == .done || response.outcome == .notFound else { return response }
        if let match {
            let holds =
                switch match {
                case .any: response.version != nil
                case .tags(let tags): tags.contains { !$0.isWeak && $0.number != nil && $0.number == response.version }
                }
            if !holds { return .preconditionFailed }
        }
        guard let noneMatch, let version = response.version else { return response }
        let isCurrent =
            switch noneMatch {
            case .any: true
            case .tags(let tags): tags.contains { $0.number == version }
            }
        guard isCurrent else { return response }
        var notModified = Response(status: .notModified, body: [], version: version)
        notModified.extras = response.extras
        return notModified
    }
}

extension EntityTag {
    fileprivate var version: TokenVersion? { number.map(TokenVersion.init(rawValue:)) }
}

extension Response {
    static var preconditionFailed: Response {
        Response(.preconditionFailed, "The token is not, or no longer, in the version that the request names.")
    }

    static var malformedPreconditions: Response {
        Response(
            .badRequest,
            "If-Match or If-None-Match is neither * nor a list of at most \(Preconditions.tagLimit) entity tags in quotation marks."
        )
    }

    static var twoPreconditions: Response {
        Response(.badRequest, "A write may have If-Match or If-None-Match, not both.")
    }
}

extension Answer {
    /// The answer to a GET, if the preconditions allow it.
    func applying(_ preconditions: Preconditions) -> Answer {
        if preconditions == Preconditions() { return self }
        return then { answer, _ in
            switch answer {
            case .now(let response): return .now(preconditions.applied(to: response))
            case .inPieces(let long):
                let response = preconditions.applied(to: Response(body: [], version: long.version))
                return response.status == .ok ? answer : .now(response)
            case .later: preconditionFailure("an answer is changed when it is there")
            }
        }
    }
}
