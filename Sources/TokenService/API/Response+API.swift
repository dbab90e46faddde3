import HTTP
import TokenStore

/// The answers that only the API has.
extension Response {
    static var malformedUser: Response {
        Response(
            .badRequest,
            """
            The user in the path or the query has to be UTF-8 of 1 to \(UniqueID.limit) bytes, without NUL and tags, escaped as \
            in URLs. One that is . or .. or contains a slash has to be in the query, such as /v1/user/token?user=a%2Fb, as proxies \
            would change the path.
            """)
    }

    static var malformedUserInBody: Response {
        Response(
            .badRequest,
            """
            The body has to be JSON such as {"user":"..."}, with a user of 1 to \(UniqueID.limit) bytes, without NUL and tags.
            """)
    }

    static var malformedTokenInfo: Response {
        Response(.badRequest, #"The body has to be JSON such as {"token_info":"..."} or {"token_info":{...}}."#)
    }

    static var preconditionRequired: Response {
        Response(
            .preconditionRequired,
            "Say what is to be replaced: If-Match with the ETag that was read, or If-None-Match: * for a first token.")
    }

    static var noSession: Response {
        Response(.notFound, "There is no session with this id.")
    }

    /// The only answer that contains a session's secret.
    static func created(_ secret: [UInt8], _ session: UserSession) -> Response {
        let text = String(decoding: SessionSecret.text(of: secret.span), as: UTF8.self)
        return Response(
            status: .created,
            body: Array(#"{"session":"\#(text)","id":"\#(session.id)","expires_at":\#(session.expiresAt)}"#.utf8),
            location: Array("/v1/sessions/\(session.id)".utf8))
    }

    static func list(_ sessions: [UserSession]) -> Response {
        let items = sessions.map { session in
            """
            {"id":"\(session.id)","created_at":\(session.createdAt),"expires_at":\(session.expiresAt),\
            "last_used_at":\(session.lastUsedAt)}
            """
        }
        return Response(body: Array(#"{"sessions":[\#(items.joined(separator: ","))]}"#.utf8))
    }

    static func ended(_ count: Int) -> Response {
        Response(body: Array(#"{"status":"true","ended":\#(count)}"#.utf8))
    }

    static func erased(_ erasure: Erasure) -> Response {
        Response(
            body: Array(
                #"{"status":"true","had_token":\#(erasure.hadToken),"sessions":\#(erasure.sessions)}"#.utf8))
    }
}
