import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import System

@Suite struct FileTests {
    private let temporary = TemporaryDirectory()
    private var folder: String { temporary.path }

    private func makeFile(_ name: String, _ text: String = "") throws -> String {
        let path = folder + "/" + name
        try Data(text.utf8).write(to: URL(filePath: path))
        return path
    }

    @Test(arguments: [("/a/b", "/a"), ("/a", "/"), ("a", "."), ("a/b", "a"), ("/", "/"), ("", ".")])
    func `a path's folder is what stands before its last slash`(_ path: String, _ expected: String) {
        #expect(Path.folder(of: path) == expected)
    }

    @Test func `a status tells kind, size, mode and names`() throws {
        let file = try makeFile("file", "12345")
        #expect(chmod(file, 0o640) == 0)
        #expect(link(file, folder + "/second") == 0)
        #expect(symlink("file", folder + "/link") == 0)
        let status = try #require(FileStatus(folder + "/link"))
        #expect((status.kind, status.size, status.isRemoved) == (.file, 5, false))
        #expect(status.permissions == "0640")
        #expect(FileStatus(folder + "/link", followingLinks: false)?.kind == .link)
        #expect(FileStatus(folder)?.kind == .folder)
        #expect(FileStatus(folder + "/nothing") == nil)
        #expect(FileStatus.size(of: folder + "/nothing") == 0)
        #expect(FileStatus.size(of: file) == 5)
    }

    @Test func `two paths to one file are the same file`() throws {
        let file = try makeFile("file", "123")
        #expect(symlink("file", folder + "/link") == 0)
        #expect(FileIdentity.areSame(file, folder + "/link"))
        #expect(!FileIdentity.areSame(file, try makeFile("other", "123")))
        #expect(!FileIdentity.areSame(folder + "/nothing", folder + "/nothing"))
        let found = try #require(FileIdentity.find(file))
        #expect(found.size == 3)
        #expect(found.identity == FileStatus(file)?.identity)
    }

    @Test func `a status changes when a file is written or replaced`() throws {
        let file = try makeFile("file", "1")
        let first = try #require(FileStatus(file))
        #expect(link(file, folder + "/second") == 0)
        #expect(FileStatus(file) == first)
        _ = try makeFile("file", "12")
        #expect(FileStatus(file) != first)
        #expect(FileStatus(folder + "/nothing") == nil)
    }

    @Test func `what a file says stays in use until it can be read again`() throws {
        let path = try makeFile("watched", "1")
        let isHindered = Mutex(false)
        let file = try WatchedFiles(path) { path throws(SystemError) in
            guard !isHindered.withLock(\.self) else { throw SystemError(call: "open", code: EMFILE) }
            return String(decoding: try BlockingIO.contents(ofFile: path, limit: 10).bytes, as: UTF8.self)
        }
        #expect(file.content == "1" && !file.haveChanged)
        _ = try makeFile("watched", "22")
        #expect(file.content == "1" && file.haveChanged)
        isHindered.withLock { $0 = true }
        #expect(throws: SystemError.self) { try file.reload() }
        // The reason may pass without a change of the file.
        #expect(file.content == "1" && file.fault?.code == EMFILE && file.haveChanged)
        isHindered.withLock { $0 = false }
        try file.reload()
        #expect(file.content == "22" && file.fault == nil && !file.haveChanged)
        try FileManager.default.removeItem(atPath: path)
        #expect(file.haveChanged)
        #expect(throws: SystemError.self) { try file.read(path) }
        #expect(file.content == "22" && file.fault?.code == ENOENT)

        // A fault of other files is only thrown.
        let other = try file.read(try makeFile("other", "5"))
        #expect(throws: SystemError.self) { try file.read(folder + "/nothing") }
        #expect(file.fault?.code == ENOENT)
        file.use(other)
        #expect(file.content == "5" && file.names == folder + "/other" && file.fault == nil && !file.haveChanged)
    }

    @Test func `folders are created with those above them, for their owner alone`() throws {
        try Folder.create(folder + "/a/b/c")
        #expect(FileStatus(folder + "/a/b/c")?.isFolder == true)
        #expect(FileStatus(folder + "/a")?.permissions == "0700")
        try Folder.create(folder + "/a/b/c")
        let file = try makeFile("file")
        #expect(throws: SystemError(call: "mkdir", code: ENOTDIR)) { try Folder.create(file) }
        #expect(throws: SystemError(call: "mkdir", code: ENOTDIR)) { try Folder.create(file + "/a") }
    }

    @Test func `a folder lists its names, and the nearest one is found`() throws {
        _ = try makeFile("a")
        _ = try makeFile("b")
        #expect(Folder.names(in: folder)?.sorted() == ["a", "b"])
        #expect(Folder.names(in: folder + "/nothing") == nil)
        #expect(Folder.nearest(to: folder + "/x/y") == folder)
    }

    @Test func `a file is opened or created, and not through a link`() throws {
        let path = folder + "/new"
        _ = try FileDescriptor(openingOrCreating: path)
        #expect(FileStatus(path)?.permissions == "0600")
        _ = try FileDescriptor(openingOrCreating: path)
        #expect(symlink("elsewhere", folder + "/link") == 0)
        #expect(throws: SystemError(call: "open", code: ELOOP)) {
            _ = try FileDescriptor(openingOrCreating: folder + "/link")
        }
        #expect(!FileStatus.exists(folder + "/elsewhere"))
    }

    @Test func `a lock keeps a second one out, and names its process`() throws {
        let path = folder + "/lock"
        let lock = try FileLock(path)
        #expect(FileLock.holder(of: path) == Int(getpid()))
        do throws(FileLock.Failure) {
            _ = try FileLock(path)
            Issue.record("it was locked twice")
        } catch {
            guard case .held(Int(getpid())) = error else {
                Issue.record("\(error)")
                return
            }
        }
        let isInPlace = lock.isInPlace
        #expect(isInPlace)
        #expect(unlink(path) == 0)
        let isStillInPlace = lock.isInPlace
        #expect(!isStillInPlace)
        #expect(FileLock.holder(of: path) == nil)
        _ = try FileDescriptor(openingOrCreating: path)
        #expect(FileLock.holder(of: path) == nil)
    }

    @Test func `a file is changed under a lock of its folder, for which nobody waits for ever`() throws {
        func change(_ name: String) throws(LockedFolder) {
            try FileReplacement.withLock(onFolderOf: folder + "/file", patience: .milliseconds(30), or: \.self) {
                () throws(LockedFolder) in _ = mkdir(folder + "/" + name, 0o700)
            }
        }
        let other = open(folder, O_RDONLY)
        #expect(flock(other, LOCK_SH) == 0)
        let fault = #expect(throws: LockedFolder.self) { try change("never") }
        #expect(fault?.description.contains(folder) == true && FileStatus(folder + "/never") == nil)
        close(other)
        try change("later")
        #expect(FileStatus(folder + "/later") != nil)
    }

    @Test func `files of the kernel, whose size is not known, are read whole`() {
        #expect(TextFile.contents(of: "/proc/self/status")?.contains("VmRSS") == true)
        #expect(TextFile.contents(of: folder + "/nothing") == nil)
        #expect(TextFile.head(of: "/proc/self/status", count: 5) == Array("Name:".utf8))
        #expect(TextFile.head(of: folder, count: 5) == nil)
    }
}

@Suite struct ExposureTests {
    /// The status of a new file with a mode.
    private func status(mode: mode_t) throws -> FileStatus {
        let folder = TemporaryDirectory()
        let path = folder.path + "/file"
        try Data().write(to: URL(filePath: path))
        #expect(chmod(path, mode) == 0)
        return try #require(FileStatus(path))
    }

    @Test(arguments: [
        (mode_t(0o660), true), (0o640, true), (0o600, false), (0o664, false), (0o661, false),
    ])
    func `only a file that nobody but its group may use besides its owner is its group's`(
        _ mode: mode_t, _ expected: Bool
    ) throws {
        let status = try status(mode: mode)
        // Root's own group is never that of a volume.
        let isPossible = status.group != 0
        let group = status.volumeGroup(ofUser: geteuid(), groups: [status.group])
        #expect(group == (expected && isPossible ? status.group : nil))
        #expect(status.volumeGroup(ofUser: geteuid(), groups: []) == nil)
        #expect(status.volumeGroup(ofUser: geteuid(), groups: [status.group &+ 1]) == nil)
        // Another user's file, unless that is root.
        let ofAnother = status.volumeGroup(ofUser: geteuid() &+ 1, groups: [status.group])
        #expect(ofAnother == (status.user == 0 ? group : nil))
    }

    @Test(arguments: [(mode_t(0o2775), true), (0o2777, true), (0o775, false), (0o777, false)])
    func `the folder of a volume is its group's, whatever others may do there`(_ mode: mode_t, _ expected: Bool) throws
    {
        // Only root can make folders of other groups.
        guard geteuid() == 0 else { return }
        let folder = TemporaryDirectory()
        try #require(chown(folder.path, 0, 10_001) == 0 && chmod(folder.path, mode) == 0)
        let status = try #require(FileStatus(folder.path))
        #expect(status.volumeGroup(ofUser: 10_001, groups: [10_001]) == (expected ? 10_001 : nil))
        #expect(status.volumeGroup(ofUser: 10_001, groups: [7]) == nil)
        try #require(chown(folder.path, 10_002, 10_001) == 0 && chmod(folder.path, mode) == 0)
        #expect(try #require(FileStatus(folder.path)).volumeGroup(ofUser: 10_001, groups: [10_001]) == nil)
    }

    @Test func `outside a pod a group is others`() throws {
        #expect(try status(mode: 0o660).isOpenToOthers)
        #expect(try status(mode: 0o600).isOpenToOthers == false)
    }
}
