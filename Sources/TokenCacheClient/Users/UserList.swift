internal import Foundation

/// Who the users of a device are: a private file with a line of JSON for each, the last used one first.
///
/// A damaged line is left out, and costs no other user their entry. A later format would be in a file of another name.
struct UserList {
    struct Entry: Codable {
        var user: Users.User
        var isCurrent: Bool
    }

    let file: PrivateFile

    func read() throws(TokenCacheError) -> [Entry] {
        (try file.read() ?? Data()).split(separator: UInt8(ascii: "\n")).compactMap { try? JSON.value(Entry.self, $0) }
    }

    /// Changes the list, while no other process does.
    func change(_ change: (inout [Entry]) -> Void) throws(TokenCacheError) {
        try file.exclusively { () throws(TokenCacheError) in
            var entries = try read()
            change(&entries)
            try file.write(Data(entries.map { JSON.text($0) + "\n" }.joined().utf8))
        }
    }
}
