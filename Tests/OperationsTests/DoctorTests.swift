import Foundation
import Server
import Settings
import Testing

@testable import Operations
@testable import System
@testable import TokenStore

/// Findings of the doctor about conditions that a test cannot create on every machine.
struct DoctorTests {
    @Test(arguments: [UInt32(0x6969), 0xff53_4d42, 0xfe53_4d42, 0x517b, 0x0102_1997, 0x6573_5546])
    func `a network file system is a problem`(number: UInt32) {
        let finding = FolderCheck.fileSystem(number, "/data")
        #expect(finding.state == .problem)
        #expect(finding.text.hasPrefix("/data is on "))
        #expect(finding.advice.contains("local disk"))
    }

    @Test func `a file system in memory is warned of`() {
        let finding = FolderCheck.fileSystem(0x0102_1994, "/data")
        #expect(finding.state == .warning && finding.text.contains("loses power"))
    }

    /// ext4, XFS, Btrfs, ZFS, overlayfs.
    @Test(arguments: [UInt32(0xef53), 0x5846_5342, 0x9123_683e, 0x2fc1_2fc1, 0x794c_7630])
    func `a local file system is fine`(number: UInt32) {
        #expect(FolderCheck.fileSystem(number, "/data").state == .ok)
    }

    @Test func `little free space is a warning, and hardly any a problem`() {
        func room(_ bytes: Int, inodes: Int = 1_000, free: Int = 900) -> Finding {
            FolderCheck.room(
                FileSystem.Space(bytes: 9 << 30, freeBytes: bytes, inodes: inodes, freeInodes: free), "/data")
        }
        #expect(room(2 << 30).state == .ok)
        #expect(room(500 << 20).state == .warning)
        #expect(room(60 << 20).state == .problem)
        #expect(room(60 << 20).text.contains("60 MiB"))
        // Nor has a file system without free inodes any.
        #expect(room(2 << 30, free: 0).state == .problem && room(2 << 30, free: 0).text.contains("inodes"))
        #expect(room(60 << 20, free: 0).text.contains("60 MiB"))
        // Some, such as Btrfs, have no limit.
        #expect(room(2 << 30, inodes: 0, free: 0).state == .ok)
    }

    @Test func `less memory than the settings allow is told of`() throws {
        var settings = Settings()
        let found = try #require(Server.memoryShortage(settings, limit: 256 << 20))
        #expect(found.fault.contains("256 MiB of memory, and the settings 448 MiB"))
        #expect(
            Server.memoryShortage(settings, limit: 448 << 20) == nil && Server.memoryShortage(settings, limit: 0) == nil
        )
        settings.bufferLimit = 32 << 20
        #expect(Server.memoryShortage(settings, limit: 256 << 20) == nil)
    }

    @Test func `a key ring in the service manager's credentials is found`() throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let folders = [folder.path + "/none", folder.path]
        #expect(StoreCredential.path(in: folders) == nil)
        try Data().write(to: folder.appending(path: "token-cache.keys"))
        #expect(StoreCredential.path(in: folders) == folder.path + "/token-cache.keys")
    }
}

extension DoctorTests {
    /// What does not fit, of a store with rows that are sealed with the keys 1 and 2 of a ring, or in the clear.
    private func misfits(_ keyRing: String?, isSealed: Bool, _ ring: KeyRing?) -> [String] {
        let sealing = StoreSealing(keyRing: keyRing, keyNumbers: keyRing == nil ? [] : [1, 2])
        return StoreCheck.misfits(sealing, isSealed: isSealed, ring, of: "it").map { "\($0.state) \($0.text)" }
    }

    @Test func `keys and settings that do not fit the store are problems`() throws {
        let ring = KeyRing.random(createdAt: 1)
        let name = KeyRing.fingerprint(ring.identity())
        #expect(misfits(name, isSealed: true, try ring.addingKey(createdAt: 2)) == [])
        #expect(
            misfits(name, isSealed: true, ring)
                == ["problem tokens are sealed with key 2, which the key ring does not have"])
        #expect(misfits(name, isSealed: false, nil) == ["problem it is sealed, and sealing is off"])
        #expect(misfits(nil, isSealed: true, ring) == ["problem it holds tokens in the clear, and sealing is on"])
        #expect(misfits(nil, isSealed: false, nil) == [])
        // These are told of where the key ring is read.
        #expect(misfits(name, isSealed: true, nil) == [] && misfits("other", isSealed: true, ring) == [])
        // Before the first server has started.
        #expect(StoreCheck.misfits(nil, isSealed: true, nil, of: "it").isEmpty)
    }
}

struct BackupCheckTests {
    private static let now: Int64 = 1_795_219_200

    @Test(
        arguments: [
            (nil, true, "no backup is recorded yet"),
            (1, true, "the last backup succeeded at 2026-11-20T"),
            // When the alert says so.
            (26, true, "the last backup succeeded at 2026-11-19T"),
            (27, false, "the last backup is older than a day: it ended at 2026-11-19T"),
            // A clock that was set back makes no backup old.
            (-5, true, "the last backup succeeded at 2026-11-21T"),
        ] as [(hours: Int64?, isFine: Bool, text: String)])
    func `a backup is old when the alert says so`(hours: Int64?, isFine: Bool, text: String) {
        let record = hours.map { hours in
            let end = Self.now - hours * 3_600
            return BackupRecord(isSuccessful: true, endTime: end, successTime: end)
        }
        let finding = BackupCheck.finding(record, now: Self.now)
        #expect((finding.state == .ok) == isFine && finding.text.hasPrefix(text), "\(finding)")
    }
}
