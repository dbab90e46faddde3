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
    /// What is reported of a store with rows that are sealed with the keys 1 and 2 of a ring.
    private func missingKeys(of keyRing: String, _ ring: KeyRing?) -> [String] {
        let sealing = StoreSealing(keyRing: keyRing, keyNumbers: [1, 2])
        return StoreCheck.missingKeys(of: sealing, ring).map { "\($0.state) \($0.text)" }
    }

    @Test func `keys that the store's ring lacks are problems`() throws {
        let ring = KeyRing.random(createdAt: 1)
        let name = KeyRing.fingerprint(ring.identity())
        #expect(missingKeys(of: name, try ring.addingKey(createdAt: 2)) == [])
        #expect(
            missingKeys(of: name, ring) == ["problem tokens are sealed with key 2, which the key ring does not have"])
        // These are told of where the key ring is read.
        #expect(missingKeys(of: name, nil) == [] && missingKeys(of: "other", ring) == [])
        // Before the first server has started.
        #expect(StoreCheck.missingKeys(of: nil, nil).isEmpty)
    }
}

struct WalkCheckTests {
    private static let now: Int64 = 1_795_219_200

    /// A round with three tokens, of which one does not open if it is damaged.
    private func round(isDamaged: Bool, endedAt: Int64?) -> WalkReport {
        var report = WalkReport(beganAt: 1)
        for _ in 0..<3 { report.noteToken(writtenAt: 1) }
        // With the keys of the ring.
        report.noteUnreadable(.missingKey(number: 7), "token cd34")
        if isDamaged { report.noteUnreadable(.tampered(keyNumber: 1), "token ab12") }
        report.endedAt = endedAt
        return report
    }

    private func findings(_ last: WalkReport?, _ present: WalkReport) -> [String] {
        var state = WalkState()
        (state.last, state.present) = (last, present)
        return WalkCheck.findings(WalkStatus(state, total: 6), now: Self.now).map { "\($0.state) \($0.text)" }
    }

    @Test(
        arguments: [(0, "ok"), (3 * 86_400, "ok"), (3 * 86_400 + 1, "warning"), (-86_400, "ok")] as [(Int64, String)])
    func `a walk over all rows that does not end is told of when the alert says so`(age: Int64, state: String) {
        let found = findings(round(isDamaged: false, endedAt: Self.now - age), WalkReport(beganAt: 1))
        #expect(found.count == 1)
        #expect(found[0].hasPrefix("\(state) the last walk over all rows ended at 2026-11-"))
        #expect(found[0].hasSuffix("Z, with 3 tokens and 0 sessions; the present one has visited 0 of 6 rows"))
    }

    @Test func `damage that the walk has found is a problem, with its rows`() {
        let (sound, damaged) = (round(isDamaged: false, endedAt: Self.now), round(isDamaged: true, endedAt: nil))
        let first = "ok no walk over all rows has ended yet; the present one has visited 3 of 6 rows"
        #expect(findings(nil, sound) == [first])
        for last in [sound, damaged, nil] {
            for present in [sound, damaged] where present == damaged || last == damaged {
                let found = findings(last, present)
                #expect(found.count == 2)
                #expect(found[1].hasPrefix("problem the walk over all rows has found damage: 1 x "))
                #expect(found[1].contains("key 1") && !found[1].contains("key 7"))
                #expect(found[1].hasSuffix("; not opened were token cd34, token ab12"))
            }
        }
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
