import Foundation
import Glibc
import System
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

/// Links in the places of a store's files, which may be anywhere.
@Suite struct LinkTests {
    private let temporary = TemporaryDirectory()
    private var folder: String { temporary.path }

    private static func link(_ path: String, to target: String) throws {
        try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: target)
    }

    private static func makeFile(_ path: String, _ text: String = "") throws {
        try Data(text.utf8).write(to: URL(filePath: path))
    }

    private static func makeFolder(_ path: String) throws {
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }

    private static func fault(opening directory: String) -> SQLiteOpenError? {
        do throws(SQLiteOpenError) {
            _ = try DataDirectory.lock(directory)
            _ = try DatabaseFile(in: directory)
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
    }

    @Test(arguments: ["../real/store", "../real/./x/../store", "/ABOVE/real/store", "../other/next", "../folder/store"])
    func `links are followed to their end`(_ target: String) throws {
        for name in ["real/x", "data", "other"] { try Self.makeFolder("\(folder)/\(name)") }
        try Self.makeFile(folder + "/real/store")
        try Self.link(folder + "/other/next", to: folder + "/real/store")
        try Self.link(folder + "/folder", to: "real")
        try Self.link(folder + "/data/keys", to: target.replacing("/ABOVE", with: folder))
        #expect(try FollowedPath(folder + "/data/keys").path == Path.resolved(folder) + "/real/store")
    }

    @Test(arguments: ["../nowhere", "/nowhere/at/all", "keys", "../data/keys"])
    func `nothing is made through a link that leads nowhere`(_ target: String) throws {
        try Self.makeFolder(folder + "/data")
        try Self.link(folder + "/data/keys", to: target)
        let error = #expect(throws: SQLiteOpenError.self) { try SQLiteTokenStore(at: folder + "/data") }
        guard case .shared(.keyRing(.link(.leadsNowhere))) = error else {
            Issue.record("it was opened")
            return
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder) == ["data"])
    }

    @Test(arguments: ["lock", "tokens.db", "tokens.db-wal", "tokens.db-shm", "tokens.db-journal"])
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
        try Self.makeFile(folder + "/ring")
        let path = folder + "/data/keys"
        try Self.link(path, to: folder + "/ring")
        #expect(try FollowedPath(path).path == Path.resolved(folder) + "/ring")
        _ = lchown(isFolders ? folder + "/data" : path, 65_534, 65_534)
        #expect(throws: LinkError.ofOthers(path: path)) { try FollowedPath(path) }
    }

    @Test func `a backup does not take the place of a file of the store`() async throws {
        let data = folder + "/data"
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        // Empty, as a checkpoint leaves it.
        try await store.perform { try $0.checkpoint(.truncate) }
        for name in ["", "-wal", "-journal", "-check", ".new", "-wal.damaged"].map({ "tokens.db" + $0 }) + ["lock"] {
            let error = await #expect(throws: StoreError.self) {
                try await SQLiteAdministrator(store).backUp(to: "\(data)/\(name)") { _ in }
            }
            #expect("\(String(describing: error))".contains("a file of the store itself"), "\(name)")
        }
    }
}
