import Cryptography
import Glibc
import Settings
import System
import TokenStore

/// A password in a file, such as a systemd credential (systemd.exec(5), LoadCredential=).
struct PasswordFile: Sendable {
    let path: String
    /// For error messages, such as `the credential PATH, which has the password of the database,`.
    private let subject: String

    /// Longer than any password.
    private static let limitInBytes = 64 << 10

    /// - Parameters:
    ///   - owner: Whose password it is, for error messages.
    ///   - environment: Names the folder of credentials.
    /// - Returns: Nil if there is no such credential.
    init?(credential name: String, of owner: String, _ environment: [String: String]) {
        guard let folder = environment["CREDENTIALS_DIRECTORY"], !folder.isEmpty else { return nil }
        path = folder + "/" + name
        guard FileStatus(path) != nil else { return nil }
        subject = "the credential \(path), which has the password of \(owner),"
    }

    /// - Parameter subject: For error messages.
    init(path: String, subject: String) {
        (self.path, self.subject) = (path, subject)
    }

    /// Reads the password, without the newline at its end.
    func read() throws(StoreOpenError) -> SecretText {
        var bytes: [UInt8]
        do {
            let descriptor = try FileDescriptor(opening: path, O_RDONLY | O_NONBLOCK)
            bytes = try BlockingIO.read(from: descriptor.number, limit: Self.limitInBytes + 1)
        } catch {
            throw fault("cannot be read (\(error)); give the server's user read access to it")
        }
        defer { SecretKey.wipe(&bytes) }
        guard bytes.count <= Self.limitInBytes else {
            throw fault("has more than 64 KiB; write only the password into it")
        }
        if bytes.last == UInt8(ascii: "\n") { bytes.removeLast() }
        if bytes.last == UInt8(ascii: "\r") { bytes.removeLast() }
        guard !bytes.isEmpty else { throw fault("is empty; write the password into it, or remove it") }
        guard !bytes.contains(where: { $0 == 0 || $0 == UInt8(ascii: "\n") }),
            let text = String(validating: bytes, as: UTF8.self)
        else { throw fault("is not one line of UTF-8 text; write only the password into it") }
        return SecretText(text)
    }

    private func fault(_ text: String) -> StoreOpenError {
        .store(StoreFault("\(subject) \(text)"))
    }
}

/// The key ring in the folders in which systemd searches for credentials (systemd.exec(5), LoadCredential=).
enum StoreCredential {
    static let standardFolders = [
        "/etc/credstore", "/etc/credstore.encrypted", "/run/credstore", "/run/credstore.encrypted",
    ]

    /// The path of the credential in one of the folders; nil if there is none.
    static func path(in folders: [String] = standardFolders) -> String? {
        folders.map { "\($0)/\(KeyRingFile.credentialName)" }.first { FileStatus($0) != nil }
    }

    /// Whether a file is one that systemd makes for a service and that exists only while the service runs.
    static func isTransient(_ path: String) -> Bool {
        path.hasPrefix("/run/credentials/") && FileStatus(path) == nil
    }
}
