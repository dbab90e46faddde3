internal import Cryptography
internal import Glibc
internal import System

/// Files with keys: short texts that only their owner may read.
enum KeyFile {
    /// Longer than any of them.
    private static let sizeLimit = 1 << 16

    /// The lines without comments; nil if there is no such file.
    static func lines(of path: String) throws(AuditError) -> [[UInt8]]? {
        do throws(SystemError) {
            let file = try FileDescriptor(opening: path, O_RDONLY | O_NONBLOCK)
            let status = try FileStatus.read(file.number)
            guard status.isFile else { return [] }
            guard !status.isOpenToOthers else { throw SystemError(call: modeCall, code: Int32(status.mode & 0o777)) }
            var bytes = try BlockingIO.read(from: file.number, limit: sizeLimit)
            defer { SecretKey.wipe(&bytes) }
            let lines = bytes.withoutByteOrderMark.split(separator: UInt8(ascii: "\n"))
            return lines.map(Array.init).filter { $0.first != UInt8(ascii: "#") }
        } catch {
            if error.code == ENOENT && error.call == "open" { return nil }
            if error.call == modeCall { throw .keyFileMode(path: path, mode: UInt32(error.code)) }
            throw .file(path: path, error)
        }
    }

    private static let modeCall = "mode"

    /// Writes a file that must not exist.
    static func create(_ path: String, _ text: [UInt8]) throws(AuditError) {
        do throws(SystemError) {
            let file = try FileDescriptor(opening: path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600)
            do throws(SystemError) {
                try write(text, to: file.number)
                file.adoptOwner(of: Path.folder(of: path))
                try Folder.synchronize(Path.folder(of: path))
            } catch {
                _ = unsafe unlink(path)
                throw error
            }
        } catch {
            if error.code == EEXIST { throw .keyFileExists(path: path) }
            throw .file(path: path, error)
        }
    }

    /// Replaces a file, or makes it; one of both texts is there whatever happens.
    ///
    /// The former text is overwritten afterwards, as a file that is only removed often stays readable on its disk.
    static func replace(_ path: String, _ text: [UInt8]) throws(AuditError) {
        let temporary = path + ".new"
        do throws(SystemError) {
            let former = try? FileDescriptor(opening: path, O_WRONLY | O_NOFOLLOW)
            _ = unsafe unlink(temporary)
            let file = try FileDescriptor(opening: temporary, O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
            file.adoptOwner(of: path)
            do throws(SystemError) {
                try write(text, to: file.number)
                guard unsafe rename(temporary, path) == 0 else { throw SystemError.last("rename") }
            } catch {
                _ = unsafe unlink(temporary)
                throw error
            }
            try Folder.synchronize(Path.folder(of: path))
            if let former {
                try? BlockingIO.write([UInt8](repeating: 0x23, count: text.count)[...], to: former.number, at: 0)
                try? BlockingIO.synchronizeData(former.number)
            }
        } catch {
            throw .file(path: path, error)
        }
    }

    private static func write(_ text: [UInt8], to descriptor: Int32) throws(SystemError) {
        try BlockingIO.write(text, to: descriptor)
        try BlockingIO.synchronize(descriptor)
    }

    /// A key in base64url.
    static func key(_ text: ArraySlice<UInt8>) -> SecretKey? {
        guard var bytes = Base64URL.decode(Array(text).span) else { return nil }
        defer { SecretKey.wipe(&bytes) }
        return bytes.count == SecretKey.length ? SecretKey(bytes.span) : nil
    }
}
