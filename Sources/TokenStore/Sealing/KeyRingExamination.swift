/// What is not secret of a key ring.
package struct KeyRingExamination: Sendable {
    /// The numbers of its keys, the newest last.
    package let numbers: [Int]
    /// Identifies the ring.
    package let fingerprint: String

    /// Reads a ring; nil if there is no such file.
    package static func examine(_ file: KeyRingFile) throws(KeyRingError) -> KeyRingExamination? {
        guard let ring = try file.load() else { return nil }
        do throws(SealingError) {
            return KeyRingExamination(
                numbers: ring.keys.map(\.number), fingerprint: KeyRing.fingerprint(try ring.identity()))
        } catch {
            throw .library(error)
        }
    }
}
