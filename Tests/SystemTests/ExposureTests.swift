import Foundation
import Glibc
import TestSupport
import Testing

@testable import System

struct ExposureTests {
    /// The status of a file with a mode; it belongs to this user, and its group to none of those below.
    private func status(mode: mode_t) throws -> FileStatus {
        let folder = try TemporaryDirectory()
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

    @Test func `outside a pod a group is others`() throws {
        #expect(try status(mode: 0o660).isOpenToOthers)
        #expect(try status(mode: 0o600).isOpenToOthers == false)
    }
}
