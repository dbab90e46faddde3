#if TokenRefresh
package import Cryptography
import FoundationEssentials

/// The provider that refreshes tokens, and how it is asked to.
package struct RefreshProvider: Sendable {
    package enum Kind: Sendable {
        /// Exchanges a token that is still valid for one of about 60 days (`fb_exchange_token`).
        case facebook
        /// Exchanges a refresh token (RFC 6749, section 6), with the secret in the header (`client_secret_basic`).
        case oauth2
        /// The same with the secret in the body (`client_secret_post`).
        case oauth2Post
    }

    let kind: Kind
    let url: String
    let clientID: String
    private let readSecret: @Sendable () throws -> SecretText?

    /// - Parameters:
    ///   - url: https, or http to this machine.
    ///   - readSecret: Reads the client's secret, for each exchange, so that a new secret needs no restart; nil for a client without one.
    package init(
        _ kind: Kind, url: String, clientID: String, readSecret: @escaping @Sendable () throws -> SecretText?
    ) {
        self.kind = kind
        self.url = url
        self.clientID = clientID
        self.readSecret = readSecret
    }

    /// A request to the provider, as texts that end with a NUL for libcurl; all of them are secret.
    struct Request: Sendable {
        private(set) var url: [UInt8]
        /// Empty for a GET.
        private(set) var body: [UInt8]
        /// The line `Authorization: ...` of the head; empty for none.
        private(set) var authorization: [UInt8]
        /// Whether it goes over http, to this machine.
        let isClear: Bool

        init(url: [UInt8], body: [UInt8] = [], authorization: [UInt8] = []) {
            isClear = url.starts(with: "http:".utf8)
            self.url = url + [0]
            self.body = body.isEmpty ? [] : body + [0]
            self.authorization = authorization.isEmpty ? [] : authorization + [0]
        }

        /// Overwrites the secrets.
        mutating func wipe() {
            SecretKey.wipe(&url)
            SecretKey.wipe(&body)
            SecretKey.wipe(&authorization)
        }
    }

    /// The request that refreshes a token; nil if the secret cannot be read.
    ///
    /// It names no scope: several servers keep a narrower one for good.
    func request(for token: RefreshableToken) -> Request? {
        guard case .success(let secret) = Result(catching: readSecret) else { return nil }
        let (id, password) = (Array(clientID.utf8), secret.map { Array($0.text.utf8) })
        switch kind {
        case .facebook:
            let separator = url.contains("?") ? "&" : "?"
            let query = Self.form([
                ("grant_type", Array("fb_exchange_token".utf8)), ("client_id", id), ("client_secret", password ?? []),
                ("fb_exchange_token", token.accessToken),
            ])
            return Request(url: Array((url + separator).utf8) + query)
        case .oauth2, .oauth2Post:
            var fields = [
                ("grant_type", Array("refresh_token".utf8)), ("refresh_token", token.refreshToken ?? []),
            ]
            var authorization: [UInt8] = []
            if let password, kind == .oauth2 {
                let pair = Self.encoded(id) + [UInt8(ascii: ":")] + Self.encoded(password)
                // Some servers know `Basic` only with a capital.
                authorization = Array("Authorization: Basic \(Data(pair).base64EncodedString())".utf8)
            } else {
                fields.append(("client_id", id))
                if let password { fields.append(("client_secret", password)) }
            }
            return Request(url: Array(url.utf8), body: Self.form(fields), authorization: authorization)
        }
    }

    private static func form(_ fields: [(String, [UInt8])]) -> [UInt8] {
        Array(fields.map { Array($0.utf8) + [UInt8(ascii: "=")] + encoded($1) }.joined(separator: [UInt8(ascii: "&")]))
    }

    /// Percent-encodes all but the unreserved characters of RFC 3986.
    ///
    /// A space becomes `%20`, because some servers that decode `%20` do not decode `+`.
    private static func encoded(_ text: [UInt8]) -> [UInt8] {
        text.flatMap { byte -> [UInt8] in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
                UInt8(ascii: "~"):
                [byte]
            default:
                [UInt8(ascii: "%")] + [byte >> 4, byte & 15].map { $0 < 10 ? 0x30 + $0 : 0x37 + $0 }
            }
        }
    }
}
#endif
