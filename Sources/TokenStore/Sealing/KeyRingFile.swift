import Cryptography
import Glibc
package import System

/// The file that holds a key ring.
package struct KeyRingFile: Hashable, Sendable {
    /// The file's name in a data directory.
    static let standardName = "keys"
    /// The name of systemd's credential (systemd.exec(5), LoadCredential=).
    package static let credentialName = "token-cache.keys"

    package let path: String
    /// Whether systemd provides the file, which is then neither created nor changed, and whose mode is not checked.
    package let isCredential: Bool

    /// The file that holds the ring of a data directory.
    ///
    /// - Parameters:
    ///   - path: The path in the settings; if it is empty, the credential is used if there is one, otherwise a file in
    ///     the directory.
    ///   - credentials: systemd's `$CREDENTIALS_DIRECTORY`, if it is set.
    ///   - directory: The data directory.
    package init(path: String, credentials: String?, directory: String) {
        let credential = credentials.map { $0 + "/" + Self.credentialName }
        if !path.isEmpty {
            self.path = path
            isCredential = credentials.map { path.hasPrefix($0 + "/") } ?? false
        } else if let credential, Self.mayExist(credential) {
            self.path = credential
            isCredential = true
        } else {
            self.path = directory + "/" + Self.standardName
            isCredential = false
        }
    }

    /// Whether a file may exist; false only if it certainly does not.
    ///
    /// If the credential cannot be reached, the start must fail: otherwise it would make a new key ring.
    private static func mayExist(_ path: String) -> Bool {
        unsafe access(path, F_OK) == 0 || errno != ENOENT && errno != ENOTDIR
    }

    /// Bytes; more than any ring has.
    private static let sizeLimit = 1 << 20

    /// Reads the ring; nil when there is no such file.
    package func load() throws(KeyRingError) -> KeyRing? {
        let target = try followed
        var (text, status): ([UInt8], FileStatus)
        do {
            (text, status) = try BlockingIO.contents(ofFile: target, O_RDONLY | O_NOFOLLOW, limit: Self.sizeLimit)
        } catch {
            if error.code == ENOENT { return nil }
            throw .file(path: path, error)
        }
        defer { SecretKey.wipe(&text) }
        guard isCredential || !status.isOpenToOthers else {
            throw .open(path: path, mode: status.mode & 0o777)
        }
        do {
            return try KeyRingText.ring(of: text)
        } catch {
            throw .malformed(path: path, line: error.line, reason: error.reason)
        }
    }

    /// Reads the ring; fails unless it belongs to the same store as another one.
    package func load(like present: KeyRing) throws(KeyRingError) -> KeyRing {
        guard let found = try load() else { throw .missing(path: path) }
        guard found.index.hasBytes(of: present.index) else { throw .ofAnotherStore(path: path) }
        return found
    }

    /// The group of a Kubernetes pod's volume, if that group may read the ring as well; nil otherwise.
    package var volumeGroup: UInt32? { isCredential ? nil : FileStatus(path)?.volumeGroup }

    /// The path without links.
    private var followed: String {
        get throws(KeyRingError) {
            do {
                return try FollowedPath(path).path
            } catch {
                throw .link(error)
            }
        }
    }

    /// Replaces the file as a whole and durably; if the path is a symbolic link, its target.
    package func save(_ ring: KeyRing) throws(KeyRingError) {
        guard !isCredential else { throw .credential(path: path) }
        let target = try followed
        var text = KeyRingText.bytes(of: ring)
        defer { SecretKey.wipe(&text) }
        do {
            try FileReplacement.put(text, at: target)
        } catch {
            if error.code == ENOENT { throw .noFolder(path: path) }
            throw .file(path: path, error)
        }
        do {
            try Folder.synchronize(Path.folder(of: target))
        } catch {
            throw .notDurable(path: path, code: error.code)
        }
    }
}

extension KeyRingFile {
    /// Keeps other processes from changing the file meanwhile.
    package func withLock<Result, Failure: Error>(
        or failure: (KeyRingError) -> Failure, _ body: () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try FileReplacement.withLock(onFolderOf: path, or: { failure(.locked(path: path, $0)) }, body)
    }

    /// Makes the file, unless its file system ignores the mode of a file: the next start would refuse it.
    func saveFirst(_ ring: KeyRing) throws(KeyRingError) {
        try save(ring)
        guard let status = FileStatus(path), status.isOpenToOthers else { return }
        _ = unsafe unlink(path)
        throw .openFileSystem(path: path, mode: status.mode & 0o777)
    }

    /// Gives the present file a second name before it is replaced, because backups may need the key that is about to be
    /// retired.
    ///
    /// The name contains the key's fingerprint, because another store in the same folder may have had a key with that
    /// number. An earlier attempt may have kept the key already.
    ///
    /// - Returns: The second path; nil if it existed already.
    func keep(_ key: KeyRing.NumberedKey) throws(KeyRingError) -> String? {
        guard !isCredential else { throw .credential(path: path) }
        let target = try followed
        let kept = "\(target).retired-\(key.number)-\(key.fingerprint())"
        if unsafe link(target, kept) == 0 { return kept }
        guard errno == EEXIST else { throw .file(path: kept, .last("link")) }
        let found = try KeyRingFile(path: kept, credentials: nil, directory: "").load()?.key(numbered: key.number)
        guard found?.hasBytes(of: key.key) == true else { throw .exists(path: kept) }
        return nil
    }
}

/// An error of a key ring's file; says what to do about it, and reveals nothing of its contents.
package enum KeyRingError: Error, Hashable, CustomStringConvertible {
    case file(path: String, SystemError)
    /// The file was replaced, but after a power cut the former one may be back.
    case notDurable(path: String, code: Int32)
    /// The file cannot be created.
    case noFolder(path: String)
    case locked(path: String, LockedFolder)
    /// The path is a link that is not followed.
    case link(LinkError)
    /// Users other than its owner may read or write the file.
    case open(path: String, mode: UInt32)
    /// A new file can be read by others, whatever mode it was made with.
    case openFileSystem(path: String, mode: UInt32)
    /// Lines count from 1; 0 stands for the whole file.
    case malformed(path: String, line: Int, reason: String)
    /// The file is a credential of systemd, which cannot be changed here.
    case credential(path: String)
    /// There already is a file where a ring is to be made or kept.
    case exists(path: String)
    /// The store is sealed, and there is no such file.
    case missing(path: String)
    /// The ring is not the one that the store was sealed with.
    case ofAnotherStore(path: String)
    /// The file was replaced by one without a key that the running server has.
    case lacksKey(number: Int, path: String)
    /// The ring and the store have different keys with the same number; with the fingerprints of both.
    case otherKey(number: Int, path: String, own: String, stores: String)

    package var description: String {
        switch self {
        case .file(let path, let error):
            "the key ring \(path) cannot be used (\(error))\(error.fileAdvice(otherwise: "give the server's user access to it"))"
        case .notDurable(let path, let code):
            """
            the key ring \(path) was changed, but a power cut may undo that \
            (fsync: \(SystemError.reason(code))); back it up at once
            """
        case .noFolder(let path):
            """
            the key ring \(path) cannot be made, as its folder does not exist; make it, for the server's user, or name another one
            """
        case .locked(let path, let fault): "the key ring \(path) cannot be changed: \(fault)"
        case .link(let error): "the key ring \(error)"
        case .open(let path, let mode):
            """
            the key ring \(path) can be read by others (mode 0\(String(mode, radix: 8))); \
            chmod 600 \(path), and if others may have read it, replace the key after that with token-cache keyring rotate
            """
        case .openFileSystem(let path, let mode):
            """
            no key ring was made: the file system makes \(path) readable for others (mode 0\(String(mode, radix: 8))), as exFAT, NTFS \
            and rclone do; mount it for the server's user alone (umask=077), or name a file on another disk with sealing.key_ring
            """
        case .malformed(let path, let line, let reason):
            "the key ring \(path)\(line == 0 ? "" : ", line \(line)"): \(reason); put a backup of the file in its place"
        case .credential(let path):
            """
            the key ring \(path) is a credential, which cannot be changed here; stop the server, run this as root with \
            TOKEN_CACHE_SEALING_KEY_RING=/etc/credstore/\(KeyRingFile.credentialName), or wherever the credential comes \
            from, and start it again
            """
        case .exists(let path):
            "there is a file \(path) already, and a key ring is never replaced by another one; move it away, or name another file"
        case .missing(let path):
            """
            the store is sealed and its key ring \(path) is missing; put a backup of the file in its place, \
            or name the right file with sealing.key_ring; where a service has it as a credential, run this as root with \
            TOKEN_CACHE_SEALING_KEY_RING=/etc/credstore/\(KeyRingFile.credentialName)
            """
        case .ofAnotherStore(let path):
            """
            the key ring \(path) is not the one that the store was sealed with; put that one in its place, \
            or name the right file with sealing.key_ring
            """
        case .lacksKey(let number, let path):
            """
            the key ring \(path) was changed and lacks key \(number), with which tokens may be sealed; put the newest copy of the \
            file in its place
            """
        case .otherKey(let number, let path, let own, let stores):
            """
            key \(number) of the key ring \(path) has the fingerprint \(own), and that of the store has \(stores): each was made on \
            a machine of its own. Put the key ring of a server that serves the store in its place (token-cache keyring list shows \
            the fingerprints)
            """
        }
    }
}

extension KeyRingFile {
    /// The text of a file with a new ring of one key.
    package static func newText() -> [UInt8] {
        KeyRingText.bytes(of: newRing())
    }

    /// A new ring with one key.
    static func newRing() -> KeyRing {
        KeyRing.random(createdAt: Int64(time(nil)))
    }

    /// Makes a new ring at the path, durably; an existing file stays as it is.
    package func create() throws(KeyRingError) {
        let ring = Self.newRing()
        try withLock(or: \.self) { () throws(KeyRingError) in
            // Checked under the lock: a starting server may just have made its own ring here.
            guard FileStatus(path, followingLinks: false) == nil else { throw .exists(path: path) }
            try saveFirst(ring)
        }
    }
}
