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
        let value: Value
        do {
            value = try JSONReader.value(text.utf8)
        } catch {
            throw .unreadable("its JSON is broken at byte \(error.position): \(error.reason)")
        }
        guard case .object(let members) = value else { throw .unreadable("its JSON is not an object") }
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
        /// The date; if the member is there and cannot be read, nil.
        func takeDate(_ key: Key, missing: Date) -> Date? {
            rest[key.name] == nil || rest[key.name] == .null ? missing : take(key, Self.date)
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
        // The first years of some calendars, such as Japanese eras, and those of others that are far ahead, such as the Hebrew
        // one: such a date is unknown, and neither past nor future.
        func isOfAnotherCalendar(_ date: Date?) -> Bool {
            date.map { $0 == .distantPast || $0 > .distantFuture } ?? false
        }
        if isOfAnotherCalendar(expirationDate) {
            expirationDate = nil
            rest[Key.expirationDate.name] = members[Key.expirationDate.name]
        }
        if isOfAnotherCalendar(refreshDate) {
            refreshDate = nil
            rest[Key.refreshDate.name] = members[Key.refreshDate.name]
        }
        permissionsRefreshDate = takeDate(.permissionsRefreshDate, missing: .distantPast)
        permissions = take(.permissions, Self.strings) ?? []
        declinedPermissions = take(.declinedPermissions, Self.strings) ?? []
        loginType = take(.loginType, Self.loginType) ?? .none
        // Older SDKs recorded no more than this; the member itself stays as it came.
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

    /// The SDK's distant dates are recognized by their years, as the calendars of devices count ancient days differently.
    private static func date(_ value: Value) -> Date? {
        guard let date = value.string.flatMap(TokenDate.parse) else { return nil }
        if date < TokenDate.startOfYear3 { return .distantPast }
        return abs(date.timeIntervalSince(.distantFuture)) <= 86_400 ? .distantFuture : date
    }

    private static func strings(_ value: Value) -> Set<String>? {
        guard case .array(let elements) = value else { return nil }
        let strings = elements.compactMap(\.string)
        return strings.count == elements.count ? Set(strings) : nil
    }

    private static func loginType(_ value: Value) -> LoginType? {
        guard case .number(let text) = value else { return nil }
        return Int(text).map(LoginType.init(rawValue:))
    }

    private static func isTrue(_ value: Value) -> Bool {
        switch value {
        case .bool(let bool): bool
        case .number(let text): text != "0"
        default: false
        }
    }

    /// An id that was written as a string or as a whole number.
    private static func identifier(_ value: Value) -> String? {
        switch value {
        case .string(let text) where !text.isEmpty: text
        case .number(let text): UInt64(text).map(String.init)
        default: nil
        }
    }

    // MARK: - Writing

    /// The text form: a JSON object with dates in UTC, in which `<` is escaped so that the server changes nothing.
    public var text: String {
        var members = others
        members[Key.token.name] = .string(token)
        members[Key.loginType.name] = .number(String(loginType.rawValue))
        func set(_ key: Key, _ value: Value?) {
            if let value { members[key.name] = value }
        }
        set(.expirationDate, expirationDate.map(Value.init(date:)))
        set(.refreshDate, refreshDate.map(Value.init(date:)))
        set(.permissionsRefreshDate, permissionsRefreshDate.map(Value.init(date:)))
        // An unreadable list stays as it came until there is one to put in its place.
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
        return JSONWriter.text(.object(members))
    }

    /// What stands for no token: as the guide's sample writes it, or with the logins that a sign-out has ended.
    static func noneText(ending logins: Set<String>) -> String {
        let list = Value.array(logins.sorted().map(Value.string))
        return JSONWriter.text(.object(logins.isEmpty ? [:] : [endedLogins: list]))
    }

    /// The logins that a text form without a token says to have ended.
    static func endedLogins(in text: String) -> Set<String> {
        guard case .object(let members)? = try? JSONReader.value(text.utf8) else { return [] }
        return members[endedLogins].flatMap(strings) ?? []
    }

    private static let endedLogins = "TokenCacheClient:EndedLogins"
}

extension TokenInformation.Value {
    fileprivate init(date: Date) {
        self = .string(TokenDate.text(date))
    }

    /// A value of a property list; dates become text, and data is kept in base64.
    fileprivate init(ofPropertyList value: Any) {
        switch value {
        case let date as Date: self.init(date: date)
        case let text as String: self = .string(text)
        case let data as Data: self = .string(data.base64EncodedString())
        case let elements as [Any]: self = .array(elements.map(Self.init(ofPropertyList:)))
        case let members as [String: Any]: self = .object(members.mapValues(Self.init(ofPropertyList:)))
        #if canImport(Darwin)
        // There, numbers and Booleans are one type, and each is cast to the other.
        case let number as NSNumber where CFGetTypeID(number) == CFBooleanGetTypeID(): self = .bool(number.boolValue)
        #endif
        case let number as Int: self = .number(String(number))
        case let bool as Bool: self = .bool(bool)
        case let number as Double where number.isFinite: self = .number(String(number))
        default: self = .null
        }
    }
}
