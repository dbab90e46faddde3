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
                numbers: ring.keys.map(\.number), fingerprint: fingerprint(try ring.identity()))
        } catch {
            throw .library(error)
        }
    }

    /// The beginning of a ring's identity, in hexadecimal.
    package static func fingerprint(_ identity: [UInt8]) -> String {
        identity.prefix(8).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
}
