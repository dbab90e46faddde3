internal import Glibc
internal import Synchronization

/// What a file says, which is read again when the file changes; while it cannot be used, what was read before stays in use.
///
/// Any thread. Two calls of `reload` at once could use the earlier reading last, so their caller has them wait for one another.
package final class WatchedFile<Content: Sendable, Failure: Error>: Sendable {
    /// As configured; links are followed.
    package let path: String
    private let read: @Sendable (_ path: String) throws(Failure) -> Content
    private let state: Mutex<State>

    private struct State {
        var content: Content
        /// The file as it was before the last attempt to read it, even if that failed, so that a failure is reported once.
        var stamp: FileStamp?
    }

    /// Reads the file; blocks for as long as that takes.
    package init(
        _ path: String, _ read: @escaping @Sendable (_ path: String) throws(Failure) -> Content
    ) throws(Failure) {
        // Before reading, so that a change in between is noticed.
        let stamp = FileStamp(path: path)
        state = Mutex(State(content: try read(path), stamp: stamp))
        self.path = path
        self.read = read
    }

    /// What is in use.
    package var content: Content { state.withLock(\.content) }

    /// Whether the file was written or replaced since the last attempt to read it, successful or not; costs a stat(2).
    package var hasChanged: Bool { FileStamp(path: path) != state.withLock(\.stamp) }

    /// Reads the file again, and uses what it says; blocks for as long as that takes, and must not run on a loop.
    package func reload() throws(Failure) {
        let stamp = FileStamp(path: path)
        do throws(Failure) {
            let content = try read(path)
            state.withLock { $0 = State(content: content, stamp: stamp) }
        } catch {
            state.withLock { $0.stamp = stamp }
            throw error
        }
    }
}

/// Files that say whom the server lets in.
///
/// They have no secrets, so everybody may read them; but whoever may write to one could let himself in.
package enum TrustedFile {
    /// Largest file that is read, in bytes.
    package static let sizeLimit = 1 << 20

    /// Why a file is not read; the text is to be read after the file's name.
    package enum Fault: Error, Hashable, Sendable, CustomStringConvertible {
        case unreadable(SystemError)
        /// Other users than the file's owner may write to it.
        case writable
        case tooLarge

        package var description: String {
            switch self {
            case .unreadable(let error):
                """
                cannot be read: \(error.reason)\
                \(error.fileAdvice(otherwise: "check the path, and that the server's user may read it"))
                """
            case .writable:
                "can be changed by other users, who could let themselves in; look for keys that you do not know, after chmod go-w"
            case .tooLarge: "has more than \(TrustedFile.sizeLimit >> 20) MiB"
            }
        }
    }

    /// The text of a file, without a byte order mark.
    package static func read(_ path: String) throws(Fault) -> [UInt8] {
        let (bytes, status): ([UInt8], FileStatus)
        do throws(SystemError) {
            let descriptor = try FileDescriptor(openingFile: path)
            status = try FileStatus.read(descriptor.number)
            bytes = try BlockingIO.read(from: descriptor.number, limit: sizeLimit + 1)
        } catch {
            throw .unreadable(error)
        }
        guard status.mode & 0o002 == 0, status.mode & 0o020 == 0 || status.volumeGroup != nil else { throw .writable }
        guard bytes.count <= sizeLimit else { throw .tooLarge }
        return Array(bytes.withoutByteOrderMark)
    }
}

/// Small text files, such as those of the kernel below /proc and /sys, whose size is known only by reading them.
package enum TextFile {
    /// The whole text; nil if the file cannot be read or is not UTF-8.
    package static func contents(of path: String) -> String? {
        guard let descriptor = try? FileDescriptor(openingFile: path),
            let bytes = try? BlockingIO.read(from: descriptor.number)
        else { return nil }
        return String(validating: bytes, as: UTF8.self)
    }

    /// The first bytes of a file; nil if it cannot be read.
    package static func head(of path: String, count: Int) -> [UInt8]? {
        guard let descriptor = try? FileDescriptor(openingFile: path) else { return nil }
        return try? BlockingIO.read(from: descriptor.number, limit: count)
    }
}

extension [UInt8] {
    /// The bytes of a text without the mark with which some editors begin UTF-8.
    package var withoutByteOrderMark: ArraySlice<UInt8> {
        starts(with: [0xef, 0xbb, 0xbf]) ? dropFirst(3) : self[...]
    }
}
