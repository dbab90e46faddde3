import Foundation
import Glibc
import System
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

/// Folders as pairs whose stores are the same by a link, and links that lead where they should not.
@Suite struct LinkTests {
    private let temporary: TemporaryDirectory
    private var folder: String { temporary.path }

    init() throws {
        temporary = try TemporaryDirectory()
    }

    private static func link(_ path: String, to target: String) throws {
        try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: target)
    }

    private static func makeFile(_ path: String, _ text: String = "") throws {
        try Data(text.utf8).write(to: URL(filePath: path))
    }

    private static func makeFolder(_ path: String) throws {
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }

    /// Locks a folder and its database, as opening its store does.
    private static func locks(_ directory: String) throws(SQLiteOpenError) -> (DataDirectory, String) {
        let folder = try DataDirectory.lock(directory)
        return (folder, try DatabaseLock(in: directory).database)
    }

    private static func fault(opening directory: String) -> SQLiteOpenError? {
        do throws(SQLiteOpenError) {
            _ = try locks(directory)
            return nil
        } catch {
            return error
        }
    }

    @Test func `a file without links keeps its path`() throws {
        let path = folder + "/tokens.db"
        #expect(try FollowedPath(path).path == path)
        try Self.makeFile(path)
        #expect(try FollowedPath(path).path == path)
        #expect(try !FollowedPath(path).isLink)
    }

    @Test(arguments: ["../real/store", "../real/./x/../store", "/ABOVE/real/store", "../other/next", "../folder/store"])
    func `links are followed to their end`(_ target: String) throws {
        for name in ["real/x", "data", "other"] { try Self.makeFolder("\(folder)/\(name)") }
        try Self.makeFile(folder + "/real/store")
        try Self.link(folder + "/other/next", to: folder + "/real/store")
        try Self.link(folder + "/folder", to: "real")
        try Self.link(folder + "/data/tokens.db", to: target.replacing("/ABOVE", with: folder))
        let followed = try FollowedPath(folder + "/data/tokens.db")
        #expect(followed.isLink)
        #expect(followed.path == Path.resolved(folder) + "/real/store")
    }

    @Test(arguments: ["../nowhere", "/nowhere/at/all", "tokens.db", "../data/tokens.db"])
    func `nothing is made through a link that leads nowhere`(_ target: String) throws {
        try Self.makeFolder(folder + "/data")
        try Self.link(folder + "/data/tokens.db", to: target)
        guard case .directory(.link(.leadsNowhere)) = Self.fault(opening: folder + "/data") else {
            Issue.record("it was opened")
            return
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder) == ["data"])
    }

    @Test(arguments: ["lock", "tokens.db-wal", "tokens.db-shm", "tokens.db-journal"])
    func `files that are never elsewhere are not followed there`(_ name: String) throws {
        try Self.makeFolder(folder + "/data")
        try Self.makeFile(folder + "/victim", "precious")
        try Self.link("\(folder)/data/\(name)", to: folder + "/victim")
        #expect(
            Self.fault(opening: folder + "/data") == .directory(.link(.unexpected(path: "\(folder)/data/\(name)"))))
        #expect(FileManager.default.contents(atPath: folder + "/victim") == Data("precious".utf8))
    }

    @Test(.enabled(if: geteuid() == 0, "others' links can be made by root only"), arguments: [true, false])
    func `root follows no link that others can change`(_ isFolders: Bool) throws {
        try Self.makeFolder(folder + "/data")
        try Self.makeFile(folder + "/store")
        let path = folder + "/data/tokens.db"
        try Self.link(path, to: folder + "/store")
        #expect(Self.fault(opening: folder + "/data") == nil)
        _ = lchown(isFolders ? folder + "/data" : path, 65_534, 65_534)
        guard case .directory(.link(.ofOthers)) = Self.fault(opening: folder + "/data") else {
            Issue.record("it was followed")
            return
        }
    }

    /// Names of a store and links to it: in a data folder of its own, and elsewhere.
    @Test(arguments: ["tokens.db", "store.sqlite"])
    func `a database has one process whatever folder leads to it`(_ name: String) throws {
        for part in ["real", "first", "second"] { try Self.makeFolder("\(folder)/\(part)") }
        let real = "\(folder)/real/\(name)"
        try Self.makeFile(real)
        for part in ["first", "second"] { try Self.link("\(folder)/\(part)/tokens.db", to: "../real/\(name)") }
        let directory = try DataDirectory(path: folder + "/first", creates: false)
        let first = try DatabaseLock(in: directory.path)
        let database = first.database
        #expect(database == Path.resolved(real))
        #expect(
            Self.fault(opening: folder + "/second")
                == .databaseInUse(
                    path: Path.resolved(real), directory: folder + "/second", processID: Int(getpid()))
        )
        if name == "tokens.db" {
            #expect(
                Self.fault(opening: folder + "/real")
                    == .directory(.inUse(path: folder + "/real", processID: Int(getpid()))))
        }
        #expect(DatabaseLock.holder(ofDatabaseIn: folder + "/second") == Int(getpid()))
        let isInPlace = first.isInPlace && directory.isInPlace
        #expect(isInPlace)
    }

    @Test func `a backup does not take the place of a file beside a database that a link leads to`() async throws {
        for name in ["data", "other"] { try Self.makeFolder("\(folder)/\(name)") }
        try Self.makeFile(folder + "/other/real.db")
        try Self.link(folder + "/data/tokens.db", to: folder + "/other/real.db")
        let store = try SQLiteTokenStore(at: folder + "/data") { $0.isSealed = false }
        defer { store.close() }
        // Empty, as a checkpoint leaves it.
        _ = try await store.writerThread.perform { (writer) throws(SQLiteError) in try writer.checkpoint(.truncate) }
        for suffix in ["", "-wal", "-shm", "-journal", "-check", ".new", ".lock"] {
            let error = await #expect(throws: StoreError.self) {
                try await SQLiteAdministrator(store).backUp(to: folder + "/other/real.db" + suffix) { _ in }
            }
            #expect("\(String(describing: error))".contains("a file of the store itself"), "\(suffix)")
        }
    }
}
