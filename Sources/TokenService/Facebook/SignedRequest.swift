package import Cryptography
import HTTP
import JSON
package import System

/// What Facebook says about a user of the app: the contents of the form field `signed_request`.
///
/// It is base64url of an HMAC-SHA-256, a dot, and base64url of a JSON object, which the HMAC covers as it is encoded
/// (developers.facebook.com/docs/development/create-an-app/app-dashboard/data-deletion-callback).
struct SignedRequest {
    /// The user's id in this app (each app knows a person by another one): decimal digits.
    let user: String
    /// In seconds since 1970.
    let issuedAt: Int64

    /// Why a message is not accepted, as a clause for the log.
    enum Fault: String, Error {
        case malformed = "it is not one of Facebook's"
        case signature = "its signature does not match the app secret"
        case algorithm = "it names another algorithm than HMAC-SHA256"
        case time = "it was issued more than a day before or after this machine's present time"
    }

    /// How far the time of a message may be from the present, in seconds; `Departures` keeps messages for longer.
    static let tolerance: Int64 = 86_400
    /// Facebook's messages have some 200 bytes.
    private static let lengthLimit = 4_096
    private static let userLimit = 32

    init(user: String, issuedAt: Int64) {
        (self.user, self.issuedAt) = (user, issuedAt)
    }

    /// - Parameters:
    ///   - text: The decoded field.
    ///   - secret: The app secret.
    ///   - now: In seconds since 1970.
    init(_ text: Span<UInt8>, _ secret: SecretKey, at now: Int64) throws(Fault) {
        guard text.count <= Self.lengthLimit, let dot = text.firstIndex(of: UInt8(ascii: "."), in: text.indices),
            let signature = Base64URL.decode(text.extracting(..<dot))
        else { throw .malformed }
        let payload = text.extracting((dot + 1)...)
        guard ConstantTime.areEqual(signature.span, KeyedHash(secret).mac(of: payload).span) else { throw .signature }
        guard let decoded = Base64URL.decode(payload), let object = JSONObject(decoded.span, memberLimit: 64)
        else { throw .malformed }
        guard object.text("algorithm")?.uppercased() == "HMAC-SHA256" else { throw .algorithm }
        guard let user = object.text("user_id") ?? object.number("user_id"), Self.isUser(user.utf8),
            let issuedAt = object.number("issued_at").flatMap({ Int64($0) })
        else { throw .malformed }
        guard issuedAt > now - Self.tolerance, issuedAt < now + Self.tolerance else { throw .time }
        self.init(user: user, issuedAt: issuedAt)
    }

    /// Whether a text can be a user's id.
    static func isUser(_ text: some Collection<UInt8>) -> Bool {
        (1...userLimit).contains(text.count) && text.allSatisfy { $0 >= UInt8(ascii: "0") && $0 <= UInt8(ascii: "9") }
    }
}

/// The file with the secret of an app at Facebook.
package typealias AppSecretFile = WatchedFiles<String, SecretKey, KeyFileError>

extension SecretKey {
    /// Reads an app secret, whose 32 hexadecimal digits are themselves the key, as text.
    package static func appSecret(ofFile path: String) throws(KeyFileError) -> SecretKey {
        var (bytes, status): ([UInt8], FileStatus)
        do {
            (bytes, status) = try BlockingIO.contents(ofFile: path, limit: 4_096)
        } catch {
            throw KeyFileError(unreadable: path, error)
        }
        defer { wipe(&bytes) }
        guard status.mode & 0o007 == 0 else {
            throw KeyFileError(path, "can be read by all users of this machine; run chmod o-rwx on it")
        }
        while let last = bytes.last, last == UInt8(ascii: "\n") || last == UInt8(ascii: "\r") { bytes.removeLast() }
        guard bytes.count == length, Hexadecimal.decode(bytes) != nil else {
            throw KeyFileError(
                path,
                """
                is not an app secret, which has 32 hexadecimal digits; write only the secret into it, which the app's dashboard \
                shows under App settings, Basic
                """)
        }
        return SecretKey(bytes.span)
    }
}
