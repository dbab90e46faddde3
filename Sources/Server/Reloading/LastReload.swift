/// How the last reload of settings and certificates ended; the start counts as the first one.
package struct LastReload: Sendable {
    package var isSuccessful = true
    /// When settings were last read and applied, in seconds since 1970.
    package var successTime: Int64
}
