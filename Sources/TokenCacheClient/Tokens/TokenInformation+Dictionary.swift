public import Foundation

extension TokenInformation {
    /// The names of the SDK's dictionary (`FBSessionTokenCachingStrategy.m`), without their common beginning, and this library's own.
    enum Key: String, CaseIterable {
        case token = "TokenKey"
        case expirationDate = "ExpirationDateKey"
        case refreshDate = "RefreshDateKey"
        case permissions = "PermissionsKey"
        case permissionsRefreshDate = "PermissionsRefreshDateKey"
        case declinedPermissions = "DeclinedPermissionsKey"
        case loginType = "LoginTypeLoginKey"
        case isFacebookLogin = "IsFacebookLoginKey"
        case appID = "AppIDKey"
        case userID = "UserFBIDKey"
        case loginID = "LoginID"
        case refreshToken = "RefreshToken"
        case idToken = "IDToken"

        var name: String {
            switch self {
            case .loginID, .refreshToken, .idToken: "TokenCacheClient:" + rawValue
            default: "com.facebook.sdk:TokenInformation" + rawValue
            }
        }
    }

    // MARK: - Reading

    /// Reads the text form; nil if the text says that there is no token.
    ///
    /// There is none in an empty text, in `{}`, and in an object whose token is missing or blank. As in the SDK, a missing
    /// expiration is the distant future, a missing refresh date is now, and a missing permissions refresh date is the distant
    /// past. A member whose value cannot be read stays in `others`, and its property has no value.
    ///
    /// - Parameters:
    ///   - text: A JSON object, or nothing.
    ///   - now: The present.
    /// - Throws: `TokenCacheError.unreadable` if the text is anything else, such as one that was cut off: it is then unknown
    ///   whether there is a token.
    public init?(text: String, now: Date = Date()) throws(TokenCacheError) {
        guard text.contains(where: { !$0.isWhitespace }) else { return nil }
        guard let members = try? JSON.value([String: Value].self, text.utf8) else {
            throw .unreadable("it is not a JSON object")
        }
        try self.init(members: members, now: now)
    }

    /// Reads the file that the guide's sample writes on the device, `TokenInfo.plist`; nil if it says that there is no token.
    ///
    /// - Parameters:
    ///   - propertyList: The contents of the file.
    ///   - now: The present.
    /// - Throws: `TokenCacheError.unreadable` if it is not a property list with a dictionary.
    public init?(propertyList: Data, now: Date = Date()) throws(TokenCacheError) {
        // Unsafe by its signature only: no pointer is passed.
        guard let list = unsafe try? PropertyListSerialization.propertyList(from: propertyList, format: nil),
            let dictionary = list as? [String: Any]
        else { throw .unreadable("it is not a property list with a dictionary") }
        try self.init(members: dictionary.mapValues(Value.init(ofPropertyList:)), now: now)
    }

    private init?(members: [String: Value], now: Date) throws(TokenCacheError) {
        var rest = members
        func take<Property>(_ key: Key, _ read: (Value) -> Property?) -> Property? {
            guard let value = rest[key.name], let property = read(value) else { return nil }
            rest[key.name] = nil
            return property
        }
        /// The date; nil if the member is there and cannot be read.
        func takeDate(_ key: Key, missing: Date) -> Date? {
            guard let value = rest[key.name], value != .null else { return missing }
            return take(key) { value in
                let date = Self.date(value)
                // The years of some calendars, such as Japanese eras, look like the distant past, and those of others, such as
                // the Hebrew one, are far in the future. Such a date is unknown.
                let isOfAnotherCalendar = date.map { $0 == .distantPast && missing != $0 || $0 > .distantFuture }
                return isOfAnotherCalendar == true ? nil : date
            }
        }

        switch members[Key.token.name] {
        case nil, .null: return nil
        case .string(let text):
            guard text.contains(where: { !$0.isWhitespace }) else { return nil }
            token = text
            rest[Key.token.name] = nil
        default: throw .unreadable("its token is not a string")
        }
        expirationDate = takeDate(.expirationDate, missing: .distantFuture)
        refreshDate = takeDate(.refreshDate, missing: now)
        permissionsRefreshDate = takeDate(.permissionsRefreshDate, missing: .distantPast)
        permissions = take(.permissions, Self.strings) ?? []
        declinedPermissions = take(.declinedPermissions, Self.strings) ?? []
        loginType = take(.loginType, Self.loginType) ?? .none
        // Older SDKs recorded only this. The member itself stays in `others`.
        if loginType == .none, members[Key.isFacebookLogin.name].map(Self.isTrue) == true {
            loginType = .facebookApplication
        }
        appID = take(.appID, Self.identifier)
        userID = take(.userID, Self.identifier)
        loginID = take(.loginID, \.string)
        refreshToken = take(.refreshToken, \.string)
        idToken = take(.idToken, \.string)
        others = rest
    }

    /// The date in a member; one within a day of the SDK's distant future is that.
    private static func date(_ value: Value) -> Date? {
        guard let date = value.string.flatMap(TokenDate.parse) else { return nil }
        return abs(date.timeIntervalSince(.distantFuture)) <= 86_400 ? .distantFuture : date
    }

    private static func strings(_ value: Value) -> Set<String>? {
        guard case .array(let elements) = value else { return nil }
        let strings = elements.compactMap(\.string)
        return strings.count == elements.count ? Set(strings) : nil
    }

    private static func loginType(_ value: Value) -> LoginType? {
        guard case .number(let number) = value else { return nil }
        return Int(number.description).map(LoginType.init(rawValue:))
    }

    private static func isTrue(_ value: Value) -> Bool {
        switch value {
        case .bool(let bool): bool
        case .number(let number): number != 0
        default: false
        }
    }

    /// An id that was written as a string or as a whole number.
    private static func identifier(_ value: Value) -> String? {
        switch value {
        case .string(let text) where !text.isEmpty: text
        case .number(let number): UInt64(number.description).map(String.init)
        default: nil
        }
    }

    // MARK: - Writing

    /// The text form: a JSON object with dates in UTC, in which `<` is escaped so that the server changes nothing.
    public var text: String {
        var members = others
        members[Key.token.name] = .string(token)
        members[Key.loginType.name] = .number(Decimal(loginType.rawValue))
        func set(_ key: Key, _ value: Value?) {
            if let value { members[key.name] = value }
        }
        func set(_ key: Key, _ date: Date?) { set(key, date.map { .string(TokenDate.text($0)) }) }
        set(.expirationDate, expirationDate)
        set(.refreshDate, refreshDate)
        set(.permissionsRefreshDate, permissionsRefreshDate)
        // An unreadable list stays until there is one to replace it.
        if !permissions.isEmpty || members[Key.permissions.name] == nil {
            members[Key.permissions.name] = .array(permissions.sorted().map(Value.string))
        }
        if !declinedPermissions.isEmpty {
            members[Key.declinedPermissions.name] = .array(declinedPermissions.sorted().map(Value.string))
        }
        set(.appID, appID.map(Value.string))
        set(.userID, userID.map(Value.string))
        set(.loginID, loginID.map(Value.string))
        set(.refreshToken, refreshToken.map(Value.string))
        set(.idToken, idToken.map(Value.string))
        return JSON.text(members)
    }

    /// The text for no token: that of the guide's sample, or with the logins that a sign-out has ended.
    static func noneText(ending logins: Set<String>) -> String {
        JSON.text(logins.isEmpty ? [:] : [endedLogins: logins.sorted()])
    }

    /// The logins that have ended, according to a text without a token.
    static func endedLogins(in text: String) -> Set<String> {
        let members = try? JSON.value([String: Value].self, text.utf8)
        return members?[endedLogins].flatMap(strings) ?? []
    }

    private static let endedLogins = "TokenCacheClient:EndedLogins"
}
