/// A symbolic link in the place of a file that is not followed; says what to do about it.
package enum LinkError: Error, Hashable, CustomStringConvertible {
    /// Its target does not exist, and is not created, as that could be anywhere.
    case leadsNowhere(path: String, target: String)
    /// Users other than root could make it lead to any file.
    case ofOthers(path: String)
    /// It stands in the place of a file that may not be a link.
    case unexpected(path: String)

    package var description: String {
        switch self {
        case .leadsNowhere(let path, let target):
            "\(path) is a link to \(target), which does not exist; mount the disk that holds it, or remove the link"
        case .ofOthers(let path):
            """
            \(path) is a link that other users than root can change, so root does not follow it; run this as the owner of \
            its folder, or make root the owner of the link and its folder
            """
        case .unexpected(let path):
            "\(path) is a link, which is not allowed for this file; find out who made the link, and remove it"
        }
    }
}
