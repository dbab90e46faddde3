internal import Glibc
internal import System

extension KeyRingFile {
    /// The text of a new ring with one key, as its file has it.
    package static func newText() throws(KeyRingError) -> [UInt8] {
        do throws(SealingError) {
            return KeyRingText.bytes(of: try KeyRing.random(createdAt: Int64(time(nil))))
        } catch {
            throw .library(error)
        }
    }

    /// Makes a new ring at the path, durably; an existing file stays as it is.
    package func create() throws(KeyRingError) {
        let ring: KeyRing
        do throws(SealingError) {
            ring = try KeyRing.random(createdAt: Int64(time(nil)))
        } catch {
            throw .library(error)
        }
        try FileReplacement.withLock(onFolderOf: path) { () throws(KeyRingError) in
            // Only now: a server that starts may just have made its own ring here, under the same lock.
            guard FileStatus(path, followingLinks: false) == nil else { throw .exists(path: path) }
            try save(ring)
        }
    }
}
