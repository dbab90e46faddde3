/// Files that say whom the server lets in.
///
/// They contain no secrets, so everybody may read them; but whoever may write to one could let himself in.
package enum TrustedFile {
    /// The text of a file, without a byte order mark.
    package static func read(_ path: String) throws(KeyFileError) -> [UInt8] {
        let (bytes, status): ([UInt8], FileStatus)
        do {
            (bytes, status) = try BlockingIO.contents(ofFile: path, limit: 1 << 20)
        } catch {
            throw KeyFileError(unreadable: path, error)
        }
        guard status.mode & 0o002 == 0, status.mode & 0o020 == 0 || status.volumeGroup != nil else {
            throw KeyFileError(
                path,
                """
                can be changed by other users, who could let themselves in; run chmod go-w on it, and look for keys that you \
                do not know
                """)
        }
        return Array(bytes.withoutByteOrderMark)
    }
}

/// Why a file of keys or certificates cannot be used, and what to do about it; quotes nothing of the file.
package struct KeyFileError: Error, Hashable, CustomStringConvertible {
    package let description: String

    /// - Parameter reason: Continues a sentence that begins with the path.
    package init(_ path: String, _ reason: String) {
        description = "\(path) \(reason)"
    }

    package init(unreadable path: String, _ error: SystemError) {
        let advice = error.fileAdvice(otherwise: "check the path, and that the server's user may read it")
        self.init(path, "cannot be read: \(error.reason)\(advice)")
    }
}
