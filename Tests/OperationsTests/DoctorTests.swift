import Foundation
import Testing
import TokenStore

@testable import Operations

/// Findings of the doctor about conditions that a test cannot create on every machine.
struct DoctorTests {
    @Test(arguments: [UInt32(0x6969), 0xff53_4d42, 0xfe53_4d42, 0x517b, 0x0102_1997, 0x6573_5546])
    func `a network file system is a problem`(number: UInt32) {
        let finding = FolderCheck.fileSystem(number, "/data")
        #expect(finding.state == .problem)
        #expect(finding.text.hasPrefix("/data is on "))
        #expect(finding.advice.contains("local disk"))
    }

    /// ext4, XFS, Btrfs, ZFS, tmpfs, overlayfs.
    @Test(arguments: [UInt32(0xef53), 0x5846_5342, 0x9123_683e, 0x2fc1_2fc1, 0x0102_1994, 0x794c_7630])
    func `a local file system is fine`(number: UInt32) {
        #expect(FolderCheck.fileSystem(number, "/data").state == .ok)
    }

    @Test func `little free space is a warning, and hardly any a problem`() {
        #expect(FolderCheck.room(2 << 30, "/data").state == .ok)
        #expect(FolderCheck.room(500 << 20, "/data").state == .warning)
        #expect(FolderCheck.room(60 << 20, "/data").state == .problem)
        #expect(FolderCheck.room(60 << 20, "/data").text.contains("60 MiB"))
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
    private func check(_ keyRing: String?, keyNumbers: Set<Int> = []) -> DatabaseCheck {
        var inspection = StoreInspection()
        inspection.sealing = .init(keyRing: keyRing, keyNumbers: keyNumbers)
        inspection.findings = [.fine("a"), .warning("b", "c"), .problem("d", "e")]
        return DatabaseCheck(inspection)
    }

    @Test func `what is found in a database is told with its advice`() {
        let findings = check(nil).findings
        #expect(findings.map(\.state) == [.ok, .warning, .problem])
        #expect(findings.map(\.text) == ["a", "b", "d"] && findings.map(\.advice) == ["", "c", "e"])
        #expect(findings.allSatisfy { $0.topic == "Database" })
    }

    @Test func `keys and settings that do not fit the database are problems`() {
        #expect(check("ring", keyNumbers: [1, 2]).keyFindings(isSealed: true, numbers: [1, 2, 3]).isEmpty)
        let lacking = check("ring", keyNumbers: [1, 2]).keyFindings(isSealed: true, numbers: [1])
        #expect(lacking.map(\.state) == [.problem] && lacking[0].text.contains("key 2 is missing"))
        #expect(check("ring").keyFindings(isSealed: false, numbers: nil)[0].advice == "set sealing.enabled to on")
        #expect(check(nil).keyFindings(isSealed: true, numbers: [1])[0].text.contains("in the clear"))
        #expect(check(nil).keyFindings(isSealed: false, numbers: nil).isEmpty)
        // Before the first server has started.
        #expect(DatabaseCheck(StoreInspection()).keyFindings(isSealed: true, numbers: [1]).isEmpty)
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
