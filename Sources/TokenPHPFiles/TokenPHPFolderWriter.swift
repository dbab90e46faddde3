import Glibc
import System

/// Writes token.php's files, each atomically: as a temporary file that is renamed.
package struct TokenPHPFolderWriter: ~Copyable {
    /// A file could not be written, for example because the disk is full.
    package struct Failure: Error, Hashable, CustomStringConvertible {
        let path: String
        let reason: String

        package var description: String { "a file in \(path) cannot be written: \(reason)" }
    }

    private static let temporaryName = ".token-cache-export.new"

    private let path: String
    private let folder: Int32

    /// Opens a folder, which it creates (mode 0700) if it is missing; fails while another writer has it open, and if it has files of
    /// tokens: those of users who have been erased since would come back with the next import.
    package init(_ path: String) throws(TokenPHPFolderError) {
        if unsafe mkdir(path, 0o700) != 0 && errno != EEXIST {
            throw TokenPHPFolderError(path: path, error: .last("mkdir"))
        }
        let folder = retryingInterrupts { unsafe open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
        guard folder >= 0 else {
            throw TokenPHPFolderError(path: path, error: .last("open"))
        }
        // Two exports would rename each other's temporary file: one id would get the token of another. A folder that cannot be
        // locked, as on some network file systems, is used all the same.
        guard flock(folder, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK else {
            close(folder)
            throw TokenPHPFolderError(path: path, error: SystemError(call: "flock", code: EWOULDBLOCK))
        }
        guard !(Folder.names(in: path) ?? []).contains(where: { $0.hasSuffix(".txt") }) else {
            close(folder)
            throw TokenPHPFolderError(path: path, error: SystemError(call: "readdir", code: ENOTEMPTY))
        }
        self.path = path
        self.folder = folder
    }

    deinit {
        _ = unsafe unlinkat(folder, Self.temporaryName, 0)
        _ = close(folder)
    }

    /// Writes a token's file (mode 0600); replaces an existing one.
    ///
    /// - Parameters:
    ///   - tokenInfo: The token info in UTF-8.
    ///   - id: The unique id, which becomes the file's name.
    ///   - modifiedAt: The file's time, in seconds since 1970.
    /// - Returns: Why the token cannot be a file; nil if it was written.
    package func write(
        _ tokenInfo: [UInt8], id: [UInt8], modifiedAt: Int64
    ) throws(Failure) -> TokenPHPFile.SkipReason? {
        let name: [UInt8]
        do {
            name = try TokenPHPFile.name(ofID: id)
        } catch {
            return error
        }
        let descriptor = openTemporary()
        guard descriptor >= 0 else { throw failure() }
        defer { close(descriptor) }
        do {
            try BlockingIO.write(TokenPHPFile.content(of: tokenInfo), to: descriptor)
        } catch {
            throw Failure(path: path, reason: error.reason)
        }
        let time = timespec(tv_sec: Int(modifiedAt), tv_nsec: 0)
        _ = unsafe [time, time].withUnsafeBufferPointer { unsafe futimens(descriptor, $0.baseAddress) }
        let isRenamed = unsafe renameat(folder, Self.temporaryName, folder, TokenPHPFile.terminated(name)) == 0
        guard isRenamed else { throw failure() }
        return nil
    }

    /// Makes all written files durable.
    package func finish() throws(Failure) {
        do {
            // One sync for all files: one for each would take about a millisecond per file.
            try BlockingIO.synchronizeFileSystem(of: folder)
        } catch {
            throw Failure(path: path, reason: error.reason)
        }
    }

    /// Creates the temporary file; never opens an existing one, which another program may have open or own.
    private func openTemporary() -> Int32 {
        let flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC
        let descriptor = unsafe openat(folder, Self.temporaryName, flags, 0o600)
        guard descriptor < 0, errno == EEXIST else { return descriptor }
        // Left by an interrupted export.
        _ = unsafe unlinkat(folder, Self.temporaryName, 0)
        return unsafe openat(folder, Self.temporaryName, flags, 0o600)
    }

    private func failure() -> Failure {
        Failure(path: path, reason: SystemError.reason(errno))
    }
}
