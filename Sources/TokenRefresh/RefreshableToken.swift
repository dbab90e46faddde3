#if TokenRefresh
import Cryptography
import System
import TokenStore

/// A token info that can be refreshed: the members that a refresh needs, and the text that it makes of them.
///
/// It is the dictionary of Facebook's SDK, which the client library uses for all providers, or the JSON of a provider's answer
/// (RFC 6749, section 5.1).
struct RefreshableToken: Sendable {
    private let members: JSONMembers
    private let isDictionary: Bool
    let accessToken: [UInt8]
    /// Nil for Facebook, which has none.
    let refreshToken: [UInt8]?
    /// Seconds since 1970; nil if it is unknown, and then the token is never due.
    private let expiresAt: Int64?
    /// When a client or a refresh obtained the token, in seconds since 1970.
    private let obtainedAt: Int64
    private let isOfFacebook: Bool

    /// Nil for a token info that this provider cannot refresh.
    ///
    /// - Parameter writtenAt: When it was stored, which is where `expires_in` begins.
    init?(_ info: [UInt8], writtenAt: Int64, by provider: RefreshProvider) {
        guard let members = JSONMembers(info) else { return nil }
        self.init(members, writtenAt: writtenAt, by: provider)
    }

    fileprivate init?(_ members: JSONMembers, writtenAt: Int64, by provider: RefreshProvider) {
        self.members = members
        // A store that somebody has manipulated may hold any number.
        let writtenAt = min(max(writtenAt, 0), 1 << 40)
        isOfFacebook = provider.kind == .facebook
        if let token = members.string(Key.token) {
            isDictionary = true
            accessToken = token
            refreshToken = members.string(Key.refreshToken)
            expiresAt = members.string(Key.expiration).flatMap { ExpirationDate.seconds($0.span) }
            obtainedAt = members.string(Key.refreshDate).flatMap { ExpirationDate.seconds($0.span) } ?? writtenAt
            // A number or a string.
            let appID = members.string(Key.appID) ?? members.value(Key.appID)
            if isOfFacebook, let appID, appID != Array(provider.clientID.utf8), appID != Array("null".utf8) {
                return nil
            }
        } else if !isOfFacebook, let token = members.string(Key.oauthToken) {
            isDictionary = false
            accessToken = token
            refreshToken = members.string(Key.oauthRefreshToken)
            let lifetime = members.number("expires_in")
            expiresAt = EndMember(members)?.seconds ?? lifetime.map { writtenAt + $0 }
            obtainedAt = expiresAt.flatMap { end in lifetime.map { end - $0 } } ?? writtenAt
        } else {
            return nil
        }
        // Tokens have no other characters (RFC 6749, appendix A), and a provider may fail when it gets them.
        guard let sent = isOfFacebook ? accessToken : refreshToken, sent.allSatisfy({ 0x20...0x7e ~= $0 }) else {
            return nil
        }
    }

    /// A token info as clients see it that are not given refresh tokens.
    static func withoutRefreshTokens(_ info: [UInt8]) -> [UInt8] {
        JSONMembers(ofAnyReader: info)?.text(with: [(Key.refreshToken, nil), (Key.oauthRefreshToken, nil)]) ?? info
    }

    /// The names in the dictionary, as `TokenInformation` of the client library has them, and in a provider's answer.
    fileprivate enum Key {
        static let oauthToken = "access_token"
        static let oauthRefreshToken = "refresh_token"
        static let token = "com.facebook.sdk:TokenInformationTokenKey"
        static let expiration = "com.facebook.sdk:TokenInformationExpirationDateKey"
        static let refreshDate = "com.facebook.sdk:TokenInformationRefreshDateKey"
        static let appID = "com.facebook.sdk:TokenInformationAppIDKey"
        static let refreshToken = "TokenCacheClient:RefreshToken"
        static let idToken = "TokenCacheClient:IDToken"
        static let mark = "TokenCacheClient:RefreshLease"
    }

    // MARK: - Times

    /// When the token becomes due for a refresh, in seconds since 1970; nil if it is unknown when it expires.
    ///
    /// That is a tenth of its lifetime before it expires; but Facebook's SDK extends no token that is less than a day old.
    var dueAt: Int64? {
        guard let expiresAt else { return nil }
        let due = expiresAt - max(0, expiresAt - obtainedAt) / 10
        return isOfFacebook ? min(expiresAt, max(due, obtainedAt + 86_400)) : due
    }

    func hasExpired(at now: Int64) -> Bool { expiresAt.map { $0 <= now } ?? false }

    /// Whether this is the same state of the same login, whatever else was changed.
    func isSame(as other: RefreshableToken) -> Bool {
        accessToken == other.accessToken && refreshToken == other.refreshToken
    }

    // MARK: - The mark

    /// What a member of the token info says to all servers: this token must not be exchanged.
    ///
    /// The member is the client library's lease (`RefreshLease`), so that devices and servers wait for each other.
    enum Mark: Equatable, Sendable {
        /// A server or a device is exchanging it, or has died while it did.
        case underWay
        /// The provider has refused the token, or may have used it up.
        case spent
    }

    /// The mark for this access token; nil if there is none, or only one for an earlier token.
    var mark: Mark? {
        guard let text = members.string(Key.mark), text.starts(with: digest) else { return nil }
        return text == digest + Self.spent ? .spent : .underWay
    }

    /// Identifies the login in its present state: a hash of the token that is sent to the provider.
    var loginDigest: [UInt8] {
        let sent = refreshToken ?? accessToken
        return SHA256Digest.digest(of: sent.span)
    }

    private var digest: [UInt8] { Array(Hexadecimal.text(SHA256Digest.digest(of: accessToken.span)).utf8) }

    private static let spent = Array(" spent".utf8)

    /// - Parameter server: The name of this process, of letters, digits and `-`.
    func marked(by server: String) -> [UInt8] { text(mark: mark(of: server)) }

    func isMarked(by server: String) -> Bool { members.string(Key.mark) == mark(of: server) }

    private func mark(of server: String) -> [UInt8] { digest + " \(server)".utf8 }

    var markedAsSpent: [UInt8] { text(mark: digest + Self.spent) }

    private func text(mark: [UInt8]) -> [UInt8] { members.text(with: [(Key.mark, JSONString.quoted(mark))]) }

    var unmarked: [UInt8] { members.text(with: [(Key.mark, nil)]) }

    // MARK: - The result

    /// The token info with what the provider has answered, without a mark.
    ///
    /// - Parameter now: Seconds since 1970.
    func refreshed(by answer: ProviderTokens, at now: Int64) -> [UInt8] {
        var changes: [(name: String, value: [UInt8]?)] = [(Key.mark, nil)]
        func set(_ name: String, _ value: [UInt8]?) {
            if let value { changes.append((name, JSONString.withoutTags(value))) }
        }
        let lifetime = answer.lifetime(at: now) ?? lifetime
        let expiresAt = lifetime.map { min(now + $0, Self.distantFuture) }
        if isDictionary {
            set(Key.token, answer.value("access_token"))
            set(Key.expiration, JSONString.quoted(Self.date(expiresAt ?? Self.distantFuture)))
            set(Key.refreshDate, JSONString.quoted(Self.date(now)))
            if answer.hasRefreshToken { set(Key.refreshToken, answer.value("refresh_token")) }
            if answer.hasIDToken { set(Key.idToken, answer.value("id_token")) }
        } else {
            set(Key.oauthToken, answer.value("access_token"))
            if answer.hasRefreshToken { set(Key.oauthRefreshToken, answer.value("refresh_token")) }
            // Copied from the answer if possible, which may have the number in a string.
            let stated = answer.expiresIn == lifetime ? answer.value("expires_in") : nil
            changes.append(("expires_in", lifetime.map { stated ?? Array("\($0)".utf8) }))
            if members.value(EndMember.name) != nil {
                let form = EndMember(members)
                changes.append((EndMember.name, expiresAt.map { form?.text($0) ?? Array("\($0)".utf8) }))
            }
            // The other members that both have, such as `scope` and `created_at`, are taken from the answer.
            let others = [Key.oauthToken, Key.oauthRefreshToken, "expires_in", EndMember.name]
            for name in answer.names where !others.contains(name) && members.value(name) != nil {
                set(name, answer.value(name))
            }
        }
        return members.text(with: changes)
    }

    /// The lifetime of this token in seconds, which its successor gets if the provider states none (RFC 6749, section 5.1).
    ///
    /// Nil if it is unknown, and for Facebook, whose tokens have no end if none is stated.
    private var lifetime: Int64? {
        let known =
            if isDictionary {
                members.string(Key.refreshDate) == nil ? nil : expiresAt.map { $0 - obtainedAt }
            } else {
                members.number("expires_in")
            }
        return known.flatMap { $0 > 0 && !isOfFacebook ? $0 : nil }
    }

    /// The date that the SDK writes if it is unknown when a token expires, in seconds since 1970.
    private static let distantFuture: Int64 = 64_092_211_200

    fileprivate static func date(_ unixTime: Int64) -> [UInt8] {
        Array(UTCTime.text(unixTime, "%Y-%m-%dT%H:%M:%S.000+0000").utf8)
    }
}

/// The member `expires_at`, which clients and some providers add to a token answer, in one of the forms that they write.
struct EndMember {
    static let name = "expires_at"
    /// Since 1970.
    let seconds: Int64
    private let form: Form
    private let isString: Bool

    private enum Form { case seconds, milliseconds, date }

    /// Nil if there is none, or none that can be read.
    init?(_ members: JSONMembers) {
        let string = members.string(Self.name)
        isString = string != nil
        if let number = members.number(Self.name) {
            // In the year 5138 at the earliest, if these were seconds.
            form = number < 100_000_000_000 ? .seconds : .milliseconds
            seconds = form == .seconds ? number : number / 1_000
        } else if let date = string.flatMap({ ExpirationDate.seconds($0.span) }) {
            (form, seconds) = (.date, date)
        } else {
            return nil
        }
    }

    /// Another moment in the same form.
    func text(_ seconds: Int64) -> [UInt8] {
        let text =
            switch form {
            case .seconds: Array("\(seconds)".utf8)
            case .milliseconds: Array("\(seconds)000".utf8)
            case .date: RefreshableToken.date(seconds)
            }
        return isString ? JSONString.quoted(text) : text
    }
}

/// A token info from a client that may not know what the server keeps with it: a mark, or a refresh token that is hidden.
struct PostedToken: Sendable {
    private typealias Key = RefreshableToken.Key

    let info: [UInt8]
    private let members: JSONMembers
    private let accessToken: (name: String, value: [UInt8])
    private let refreshToken: (name: String, value: [UInt8]?)
    /// Whether the stored refresh token is to be added.
    let lacksRefreshToken: Bool

    /// The longest token info that is read, in bytes: longer ones are not refreshed, and would hold up the loop.
    private static let longest = 16 << 10

    /// Nil for a token info to which the server adds nothing.
    ///
    /// - Parameter hides: Whether clients are not given refresh tokens.
    init?(_ info: [UInt8], hides: Bool, _ provider: RefreshProvider) {
        guard info.count <= Self.longest, let members = JSONMembers(info) else { return nil }
        let isDictionary = members.string(Key.token) != nil
        let name = isDictionary ? Key.token : Key.oauthToken
        let refreshTokenName = isDictionary ? Key.refreshToken : Key.oauthRefreshToken
        refreshToken = (refreshTokenName, members.string(refreshTokenName))
        lacksRefreshToken = hides && refreshToken.value == nil
        guard let value = members.string(name),
            lacksRefreshToken || RefreshableToken(members, writtenAt: 0, by: provider) != nil
        else { return nil }
        (self.info, self.members, accessToken) = (info, members, (name, value))
    }

    /// This token info with what was added to the stored one; nil if another login is stored.
    ///
    /// - Parameter knowsMark: Whether this token info's mark, or the lack of one, replaces the stored mark.
    func completed(from stored: [UInt8], knowsMark: Bool) -> [UInt8]? {
        guard let stored = JSONMembers(stored), stored.string(accessToken.name) == accessToken.value else { return nil }
        let storedRefreshToken = stored.string(refreshToken.name)
        guard lacksRefreshToken ? storedRefreshToken != nil : storedRefreshToken == refreshToken.value else {
            return nil
        }
        let mark = knowsMark ? members.value(Key.mark) : stored.value(Key.mark) ?? members.value(Key.mark)
        var changes: [(name: String, value: [UInt8]?)] = [(Key.mark, mark)]
        if lacksRefreshToken { changes.insert((refreshToken.name, stored.value(refreshToken.name)), at: 0) }
        return members.text(with: changes)
    }
}

/// Strings of JSON.
enum JSONString {
    /// A text as a JSON string; it must have no quotation marks, backslashes and control characters.
    static func quoted(_ text: [UInt8]) -> [UInt8] {
        [UInt8(ascii: "\"")] + text + [UInt8(ascii: "\"")]
    }

    /// JSON in which nothing looks like a tag, as in everything that clients store; `<` occurs in its strings only, and is escaped.
    static func withoutTags(_ text: [UInt8]) -> [UInt8] {
        text.flatMap { $0 == UInt8(ascii: "<") ? Array("\\u003c".utf8) : [$0] }
    }
}
#endif
