internal import Glibc
internal import System

/// Writes token.php's files, each whole or not at all.
package struct TokenPHPFolderWriter: ~Copyable {
    /// What could not be written; the disk's fault.
    package struct Failure: Error, Hashable, CustomStringConvertible {
        package let path: String
        package let reason: String

        package var description: String { "a file in \(path) cannot be written: \(reason)" }
    }

    private static let temporaryName = ".token-cache-export.new"

    private let path: String
    private let format: TokenPHPFileFormat
    private let folder: Int32

    /// Opens a folder, which is made (mode 0700) if it is missing.
    package init(_ path: String, format: TokenPHPFileFormat) throws(TokenPHPFolderError) {
        if unsafe mkdir(path, 0o700) != 0 && errno != EEXIST {
            throw TokenPHPFolderError(path: path, call: "mkdir", reason: SystemError.reason(errno))
        }
        let folder = unsafe open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard folder >= 0 else {
            throw TokenPHPFolderError(path: path, call: "open", reason: SystemError.reason(errno))
        }
        self.path = path
        self.format = format
        self.folder = folder
    }

    deinit {
        _ = unsafe unlinkat(folder, Self.temporaryName, 0)
        _ = close(folder)
    }

    /// Writes a token's file, for its owner alone, in the place of one that is there.
    ///
    /// - Returns: Why it cannot be one; nil when it is written.
    package func write(
        _ tokenInfo: [UInt8], id: [UInt8], modifiedAt: Int64
    ) throws(Failure) -> TokenPHPFile.SkipReason? {
        let name: [UInt8]
        switch TokenPHPFile.name(ofID: id) {
        case .success(let found): name = found
        case .failure(let error): return error.reason
        }
        let descriptor = openTemporary()
        guard descriptor >= 0 else { throw failure() }
        defer { close(descriptor) }
        do throws(SystemError) {
            try BlockingIO.write(format.content(of: tokenInfo), to: descriptor)
        } catch {
            throw Failure(path: path, reason: error.reason)
        }
        let time = timespec(tv_sec: Int(modifiedAt), tv_nsec: 0)
        _ = unsafe [time, time].withUnsafeBufferPointer { unsafe futimens(descriptor, $0.baseAddress) }
        let isRenamed = unsafe renameat(folder, Self.temporaryName, folder, TokenPHPFile.terminated(name)) == 0
        guard isRenamed else { throw failure() }
        return nil
    }

    /// Makes everything that was written durable.
    package func finish() throws(Failure) {
        // One for all files: a sync for each would take a millisecond each.
        sync()
        guard fsync(folder) == 0 else { throw failure() }
    }

    /// A file that is new: one that is there may be open elsewhere, and belong to anybody.
    private func openTemporary() -> Int32 {
        let flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC
        let descriptor = unsafe openat(folder, Self.temporaryName, flags, 0o600)
        guard descriptor < 0, errno == EEXIST else { return descriptor }
        // Of an export that was interrupted.
        _ = unsafe unlinkat(folder, Self.temporaryName, 0)
        return unsafe openat(folder, Self.temporaryName, flags, 0o600)
    }

    private func failure() -> Failure {
        Failure(path: path, reason: SystemError.reason(errno))
    }
}
