internal import Foundation

/// Who the users of a device are, as JSON in a private file.
struct UserList {
    struct Contents {
        var users: [Users.User] = []
        var current: String?
    }

    let file: PrivateFile

    private static let format = 1

    func read() throws(TokenCacheError) -> Contents {
        guard let data = try file.read() else { return Contents() }
        guard let value = try? JSONReader.value(data), case .object(let members) = value,
            case .number(let number)? = members["format"], let format = Int(number)
        else { throw .unreadable("the list of users is damaged") }
        guard format <= Self.format else { throw .laterFormat(found: format) }
        guard case .array(let entries)? = members["users"] else { throw .unreadable("the list of users is damaged") }
        return Contents(users: entries.compactMap(Self.user), current: members["current"]?.string)
    }

    /// Changes the list, while no other process does; one that is damaged begins anew.
    func change(_ change: (inout Contents) -> Void) throws(TokenCacheError) {
        try file.exclusively { () throws(TokenCacheError) in
            var contents = Contents()
            do throws(TokenCacheError) {
                contents = try read()
            } catch {
                // Nobody could use the app any more.
                guard case .unreadable = error else { throw error }
            }
            change(&contents)
            try write(contents)
        }
    }

    private func write(_ contents: Contents) throws(TokenCacheError) {
        var members: [String: TokenInformation.Value] = [
            "format": .number(String(Self.format)), "users": .array(contents.users.map(Self.value)),
        ]
        members["current"] = contents.current.map(TokenInformation.Value.string)
        try file.write(Data(JSONWriter.text(.object(members)).utf8))
    }

    private static func user(_ value: TokenInformation.Value) -> Users.User? {
        guard case .object(let members) = value, let id = members["id"]?.string else { return nil }
        let lastUsed = members["last_used"]?.string.flatMap(TokenDate.parse) ?? .distantPast
        return Users.User(id: id, name: members["name"]?.string, lastUsed: lastUsed)
    }

    private static func value(_ user: Users.User) -> TokenInformation.Value {
        var members: [String: TokenInformation.Value] = [
            "id": .string(user.id), "last_used": .string(TokenDate.text(user.lastUsed)),
        ]
        members["name"] = user.name.map(TokenInformation.Value.string)
        return .object(members)
    }
}
