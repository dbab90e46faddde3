public import Foundation

/// A user's token with what the Facebook SDK 3 kept beside it (`FBAccessTokenData`).
///
/// Its text form is the SDK's dictionary as JSON, which old apps can read. It has dates in whole milliseconds in the years 1 to
/// 2442, or the distant future. Two values are equal if their text forms are.
///
/// The token is a secret: descriptions and mirrors of this type show neither the token nor its user.
public struct TokenInformation: Sendable, Hashable {
    /// The access token.
    ///
    /// Never blank in information that was read.
    public var token: String
    /// When the token expires: `Date.distantFuture` for never, nil if that is unknown, as the stored date cannot be read.
    ///
    /// A token with an unknown expiration is used, and refreshed soon. New information needs a date: nil would be stored as never.
    public var expirationDate: Date?
    /// When the token was obtained or last extended.
    public var refreshDate: Date?
    /// When the permissions were last compared with Facebook's; `Date.distantPast` for never.
    public var permissionsRefreshDate: Date?
    /// What the user has allowed.
    public var permissions: Set<String>
    /// What the user was asked for and has refused.
    public var declinedPermissions: Set<String>
    /// How the user logged in.
    public var loginType: LoginType
    /// The app that the token was issued to; nil if that was not recorded, as early SDKs did not.
    public var appID: String?
    /// Facebook's number of the user; nil if that was not recorded.
    public var userID: String?
    /// Identifies the login: refreshes keep it, and a sign-out ends it.
    ///
    /// A session gives one to each login. Tokens of other apps have none, so that a login cannot be told from a refresh.
    public var loginID: String?
    /// The service's refresh token, if it has such; a secret.
    ///
    /// A session with a `refresh` of its own opens with it from an expired token.
    public var refreshToken: String?
    /// The ID token of OpenID Connect, which says who the user is; a secret.
    public var idToken: String?
    /// All other members of the dictionary, unchanged, and those above whose value cannot be read.
    public var others: [String: Value]

    /// Information about a token that has just been obtained.
    public init(
        token: String, expirationDate: Date? = .distantFuture, refreshDate: Date? = Date(),
        permissions: Set<String> = [], declinedPermissions: Set<String> = [],
        permissionsRefreshDate: Date? = .distantPast, loginType: LoginType = .none, appID: String? = nil,
        userID: String? = nil, loginID: String? = nil, refreshToken: String? = nil, idToken: String? = nil,
        others: [String: Value] = [:]
    ) {
        self.token = token
        self.expirationDate = expirationDate
        self.refreshDate = refreshDate
        self.permissions = permissions
        self.declinedPermissions = declinedPermissions
        self.permissionsRefreshDate = permissionsRefreshDate
        self.loginType = loginType
        self.appID = appID
        self.userID = userID
        self.loginID = loginID
        self.refreshToken = refreshToken
        self.idToken = idToken
        self.others = others
    }

    /// How a user logged in: `FBSessionLoginType` of the SDK.
    public struct LoginType: RawRepresentable, Sendable, Hashable {
        /// The SDK's number.
        public var rawValue: Int

        /// The type with one of the SDK's numbers.
        public init(rawValue: Int) {
            self.rawValue = rawValue
        }

        /// Not recorded.
        public static let none = LoginType(rawValue: 0)
        /// Through the account in the system's settings (iOS 6 to 10).
        public static let systemAccount = LoginType(rawValue: 1)
        /// Through the Facebook app.
        public static let facebookApplication = LoginType(rawValue: 2)
        /// Through Facebook's pages in the browser.
        public static let facebookViaSafari = LoginType(rawValue: 3)
        /// Through a web view in the app.
        public static let webView = LoginType(rawValue: 4)
        /// A test user.
        public static let testUser = LoginType(rawValue: 5)
    }

    /// Whether the token has expired at a time; false if the expiration is unknown.
    public func isExpired(at time: Date) -> Bool {
        expirationDate.map { $0 <= time } ?? false
    }

    /// The hash by which a refusal is remembered: of the token with its dates, as an extension may keep the token's text.
    var datedHash: String {
        let dates = [expirationDate, refreshDate].map { $0.map(TokenDate.text) ?? "" }
        return SHA256.hexadecimal(([token] + dates).joined(separator: " "))
    }

    /// Whether the token is an ID token of Facebook, a JWT; its access tokens are none.
    var isOfLimitedLogin: Bool {
        let parts = token.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 3 else { return false }
        let payload = parts[1].replacing("-", with: "+").replacing("_", with: "/")
        let padding = String(repeating: "=", count: (4 - payload.count % 4) % 4)
        struct Claims: Decodable { let iss: String }
        guard let data = Data(base64Encoded: payload + padding), let claims = try? JSON.value(Claims.self, data),
            let host = URL(string: claims.iss)?.host()
        else { return false }
        return host == "facebook.com" || host.hasSuffix(".facebook.com")
    }
}

extension TokenInformation {
    /// This information with what the answer to a refresh says (RFC 6749, section 5.1); everything else stays as it is.
    ///
    /// - Parameters:
    ///   - token: The new access token.
    ///   - lifetime: `expires_in`; without it, the token counts as valid for ever, and is refreshed once a day.
    ///   - refreshToken: The new refresh token; without one, the present one stays.
    ///   - now: When the token was obtained.
    public func refreshed(
        token: String, expiresIn lifetime: Duration? = nil, refreshToken: String? = nil, now: Date = Date()
    ) -> TokenInformation {
        var new = self
        (new.token, new.refreshDate) = (token, now)
        new.expirationDate = lifetime.map { now + $0.seconds } ?? .distantFuture
        new.refreshToken = refreshToken ?? self.refreshToken
        return new
    }

    /// Whether the tokens may be of the same user; one without a `userID` may be anybody's.
    func mayBeOfSameUser(as other: TokenInformation) -> Bool {
        userID == nil || other.userID == nil || userID == other.userID
    }

    /// A later token of the same login, completed by what it does not name.
    func completed(from old: TokenInformation) -> TokenInformation {
        var new = self
        new.loginID = old.loginID
        new.appID = appID ?? old.appID
        new.userID = userID ?? old.userID
        new.refreshToken = refreshToken ?? old.refreshToken
        new.idToken = idToken ?? old.idToken
        if loginType == .none { new.loginType = old.loginType }
        // The lists are one statement: a permission that was declined may be granted now.
        if permissions.isEmpty, declinedPermissions.isEmpty {
            (new.permissions, new.declinedPermissions) = (old.permissions, old.declinedPermissions)
        }
        if permissionsRefreshDate ?? .distantPast == .distantPast {
            new.permissionsRefreshDate = old.permissionsRefreshDate
        }
        new.others = old.others.merging(others) { $1 }
        return new
    }
}

extension TokenInformation {
    /// Whether two values have the same text form.
    public static func == (left: TokenInformation, right: TokenInformation) -> Bool {
        left.text == right.text
    }

    /// Hashes the text form.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(text)
    }
}

extension TokenInformation: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// The expiration, without secrets.
    public var description: String {
        "TokenInformation(expires \(expirationDate.map(TokenDate.text) ?? "at an unknown time"))"
    }

    /// The expiration, without secrets.
    public var debugDescription: String { description }

    /// A mirror without the token, so that `dump` and failed expectations of tests do not show it.
    public var customMirror: Mirror {
        Mirror(self, children: ["expirationDate": expirationDate as Any, "permissions": permissions.count])
    }
}
