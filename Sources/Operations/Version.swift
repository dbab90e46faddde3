/// The version of this program, by semantic versioning (semver.org).
package enum Version {
    package static let text = "0.1.0"
}
