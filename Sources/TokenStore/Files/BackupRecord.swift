import Glibc
package import System

/// How the last backups of a store ended.
///
/// Kept in a small file in the data folder, so that a restart does not forget it, and so that a backup that a command wrote
/// while no server ran counts too:
///
///     # The last backup, in seconds since 1970; token-cache writes this file.
///     ended 1795000000
///     outcome failed
///     succeeded 1794996400
package struct BackupRecord: Sendable, Equatable {
    /// Whether the last backup succeeded.
    package var isSuccessful: Bool
    /// When it ended, in seconds since 1970.
    package var endTime: Int64
    /// When the last one that succeeded ended; nil if none did.
    package var successTime: Int64?

    package init(isSuccessful: Bool, endTime: Int64, successTime: Int64?) {
        self.isSuccessful = isSuccessful
        self.endTime = endTime
        self.successTime = successTime
    }

    /// The record of a backup that ends now.
    ///
    /// - Parameters:
    ///   - isSuccessful: Whether it succeeds.
    ///   - before: The record before this backup; nil for none.
    package init(endingNow isSuccessful: Bool, after before: BackupRecord?) {
        let now = Int64(time(nil))
        self.init(
            isSuccessful: isSuccessful, endTime: now, successTime: isSuccessful ? now : before?.successTime)
    }

    private static let heading = "# The last backup, in seconds since 1970; token-cache writes this file.\n"

    /// Reads a data folder's record; nil if there is none, or none that can be read.
    package init?(in directory: String) {
        guard let text = TextFile.contents(of: "\(directory)/\(DataDirectory.backupRecordName)") else { return nil }
        var values: [Substring: Substring] = [:]
        for line in text.split(separator: "\n") where !line.hasPrefix("#") {
            let words = line.split(separator: " ")
            guard words.count == 2 else { return nil }
            values[words[0]] = words[1]
        }
        guard let end = values["ended"].flatMap({ Int64($0) }), let outcome = values["outcome"] else { return nil }
        self.init(
            isSuccessful: outcome == "succeeded", endTime: end, successTime: values["succeeded"].flatMap { Int64($0) })
    }

    /// Replaces a data folder's record.
    package func write(in directory: String) throws(SystemError) {
        let success = successTime.map { "succeeded \($0)\n" } ?? ""
        let text = "\(Self.heading)ended \(endTime)\noutcome \(isSuccessful ? "succeeded" : "failed")\n\(success)"
        try FileReplacement.replace("\(directory)/\(DataDirectory.backupRecordName)", with: Array(text.utf8))
    }
}
