/// Where a WAL is damaged, and how many acknowledged commits can no longer be read.
package struct WALDamage: Hashable, Sendable, Codable, CustomStringConvertible {
    /// The first frame whose checksum is wrong, counted from 1; 0 for the WAL's head.
    package let frame: Int
    /// Commits from there on whose marks are still found, and their frames; there may have been more.
    package let commits: Int
    package let frames: Int

    package var description: String {
        let place = frame == 0 ? "its head" : "its frame \(frame)"
        let rest = "\(commits) \(commits == 1 ? "commit" : "commits") with \(frames) \(frames == 1 ? "page" : "pages")"
        return "\(place) does not match its checksum, and at least \(rest) from there on cannot be read"
    }
}
