import Glibc
import System

/// Reads token.php's files one at a time, in the order in which the file system lists them.
@safe package struct TokenPHPFolderReader: ~Copyable {
    /// A file of the folder.
    package enum Entry: Hashable, Sendable {
        case token(TokenPHPFile)
        /// The name contains the unique id, and is therefore a secret.
        case skipped(name: [UInt8], TokenPHPFile.SkipReason)
    }

    private static let sizeLimit = 64 << 20

    private let path: String
    let stream: OpaquePointer

    package init(_ path: String) throws(TokenPHPFolderError) {
        guard let stream = unsafe opendir(path) else {
            throw TokenPHPFolderError(path: path, error: .last("opendir"))
        }
        unsafe self.stream = unsafe stream
        self.path = path
    }

    deinit {
        _ = unsafe closedir(stream)
    }

    /// Counts the entries of the folder, of any kind, by reading their names, and rewinds to the first one.
    package func count() throws(TokenPHPFolderError) -> Int {
        var count = 0
        while try nextName() != nil { count += 1 }
        unsafe rewinddir(stream)
        return count
    }

    /// The next file; nil at the end.
    package func next() throws(TokenPHPFolderError) -> Entry? {
        guard let name = try nextName() else { return nil }
        do {
            return .token(try read(name))
        } catch {
            return .skipped(name: name, error)
        }
    }

    private func nextName() throws(TokenPHPFolderError) -> [UInt8]? {
        while true {
            // Only errno tells a failure from the end of the folder.
            errno = 0
            guard let entry = unsafe readdir(stream) else {
                if errno == 0 { return nil }
                throw TokenPHPFolderError(path: path, error: .last("readdir"))
            }
            let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) { unsafe Array($0.prefix { $0 != 0 }) }
            if name != [UInt8(ascii: ".")] && name != Array("..".utf8) { return name }
        }
    }

    private func read(_ name: [UInt8]) throws(TokenPHPFile.SkipReason) -> TokenPHPFile {
        // O_NOFOLLOW refuses links; O_NONBLOCK keeps open(2) from blocking on a pipe.
        let flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC
        let descriptor = unsafe openat(dirfd(stream), TokenPHPFile.terminated(name), flags)
        guard descriptor >= 0 else {
            throw errno == ELOOP || errno == ENXIO ? .notAFile : .unreadable
        }
        defer { close(descriptor) }
        guard let status = try? FileStatus.read(descriptor) else { throw .unreadable }
        guard status.isFile else { throw .notAFile }
        let id = try TokenPHPFile.id(ofName: name)
        guard status.size <= Self.sizeLimit else { throw .tooLarge }
        // In the same second, token.php may write it again, and the next import must find that to be newer.
        let (modified, now) = (Int64(status.modificationTime), Int64(time(nil)))
        guard let content = try? BlockingIO.read(from: descriptor, limit: status.size) else { throw .unreadable }
        guard !content.isEmpty else { throw .empty }
        let tokenInfo = try TokenPHPFile.tokenInfo(in: content)
        guard (try? UTF8Span(validating: tokenInfo.span)) != nil else { throw .contentNotText }
        return TokenPHPFile(id: id, tokenInfo: tokenInfo, modifiedAt: modified > now ? nil : min(modified, now - 1))
    }
}
