public import Foundation

/// A user's token with what the Facebook SDK 3 kept beside it (`FBAccessTokenData`).
///
/// Its text form is the SDK's dictionary as JSON, which old apps read as they read one another's. There, dates are whole milliseconds in the years 1
/// to 2442, or the distant future; two values are equal if their dates are written alike.
///
/// The token is a secret: descriptions and mirrors of this type show neither the token nor whose it is.
public struct TokenInformation: Sendable, Hashable {
    /// The access token.
    ///
    /// Never blank in information that was read.
    public var token: String
    /// When the token expires; `Date.distantFuture`: never; nil: unknown, because what is stored cannot be read.
    ///
    /// Unknown is not expired: a token whose expiration is unknown is used, and refreshed soon.
    public var expirationDate: Date?
    /// When the token was obtained or last extended.
    public var refreshDate: Date?
    /// When the permissions were last compared with those that Facebook has; `Date.distantPast`: never.
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
    /// Tells this login from others: refreshes keep it, and a sign-out ends it.
    ///
    /// A session gives one to each login. Nil for tokens of other apps, of which it is unknown whether they come from a login or a refresh.
    public var loginID: String?
    /// What a new token is obtained by, at services that have such; a secret.
    public var refreshToken: String?
    /// Who the user is, signed by the service (OpenID Connect); a secret.
    public var idToken: String?
    /// All further members of the dictionary, as they came; and those above whose value cannot be read.
    public var others: [String: Value]

    /// Information on a token that has just been obtained.
    ///
    /// - Parameters:
    ///   - token: The access token; a blank one counts as none when it is read again.
    ///   - expirationDate: When it expires; `.distantFuture` if it does not.
    ///   - refreshDate: When it was obtained.
    ///   - permissions: What the user has allowed.
    ///   - declinedPermissions: What the user was asked for and has refused.
    ///   - permissionsRefreshDate: When the permissions were last compared with Facebook's.
    ///   - loginType: How the user logged in.
    ///   - appID: The app that the token was issued to.
    ///   - userID: Facebook's number of the user.
    ///   - loginID: Tells this login from others; nil leaves that to the session.
    ///   - refreshToken: What a new token is obtained by.
    ///   - idToken: Who the user is, signed by the service.
    ///   - others: Further members of the dictionary.
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

    /// Whether the token has surely expired at a time; false if the expiration is unknown.
    public func isExpired(at time: Date) -> Bool {
        expirationDate.map { $0 <= time } ?? false
    }
}

extension TokenInformation {
    /// Whether two values would be written alike.
    public static func == (left: TokenInformation, right: TokenInformation) -> Bool {
        left.text == right.text
    }

    /// Hashes what would be written.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(text)
    }
}

extension TokenInformation: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// When it expires, and nothing secret.
    public var description: String {
        "TokenInformation(expires \(expirationDate.map(TokenDate.text) ?? "at an unknown time"))"
    }

    /// When it expires, and nothing secret.
    public var debugDescription: String { description }

    /// A mirror without the token, so that `dump` and failed expectations of tests do not show it.
    public var customMirror: Mirror {
        Mirror(self, children: ["expirationDate": expirationDate as Any, "permissions": permissions.count])
    }
}
