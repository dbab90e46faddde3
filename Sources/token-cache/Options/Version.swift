/// The version of this program, by semantic versioning (semver.org).
enum Version {
    static let text = "0.1.0"
}
