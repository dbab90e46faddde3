internal import Glibc

/// The names of this machine's users.
package enum UserName {
    /// That of the user with an id, or the id if the user has no name.
    package static func of(_ id: UInt32) -> String {
        unsafe getpwuid(id).map { unsafe String(cString: $0.pointee.pw_name) } ?? String(id)
    }

    /// That of this process's user.
    package static var present: String { of(geteuid()) }
}
