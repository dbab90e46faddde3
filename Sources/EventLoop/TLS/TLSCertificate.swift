import COpenSSL
import Cryptography
import Glibc
import System

/// What a server's certificate and those that are sent with it say about themselves.
package struct TLSCertificate: Hashable, Sendable {
    /// The file that they were read from, as configured.
    package let path: String
    /// When all of them have become valid, in seconds since 1970.
    package let start: Int64
    /// When the first of them expires, in seconds since 1970.
    package let expiry: Int64
    /// The common name of the one that expires first; nil if that is the server's own.
    package let issuer: String?
    /// The DNS names in the server's own certificate.
    let names: [String]
}

/// Reads the names of certificates.
enum CertificateNames {
    /// The subject alternative names of a kind, such as `GEN_DNS`, as their bytes.
    ///
    /// Empty if the certificate has the extension twice, or one that cannot be read.
    static func alternative(_ certificate: OpaquePointer, kind wanted: Int32) -> [[UInt8]] {
        OpenSSLErrors.clear()
        defer { OpenSSLErrors.clear() }
        guard let list = unsafe X509_get_ext_d2i(certificate, NID_subject_alt_name, nil, nil) else { return [] }
        let names = OpaquePointer(list)
        defer { unsafe GENERAL_NAMES_free(names) }
        var found: [[UInt8]] = []
        let count = unsafe OPENSSL_sk_num(names)
        for index in 0..<count {
            guard let entry = unsafe OPENSSL_sk_value(names, index)?.assumingMemoryBound(to: GENERAL_NAME.self) else {
                continue
            }
            var kind: Int32 = 0
            guard let value = unsafe GENERAL_NAME_get0_value(entry, &kind), kind == wanted else { continue }
            let text = unsafe value.assumingMemoryBound(to: ASN1_STRING.self)
            // Not a C string: a NUL in it is part of the name.
            let bytes = unsafe UnsafeBufferPointer(
                start: ASN1_STRING_get0_data(text), count: Int(ASN1_STRING_length(text))
            )
            unsafe found.append(Array(bytes))
        }
        return found
    }

    /// The common names of the subject in UTF-8; nil for one that is not text.
    static func common(_ certificate: OpaquePointer) -> [[UInt8]?] {
        OpenSSLErrors.clear()
        defer { OpenSSLErrors.clear() }
        guard let subject = unsafe X509_get_subject_name(certificate) else { return [] }
        var found: [[UInt8]?] = []
        var index = unsafe X509_NAME_get_index_by_NID(subject, NID_commonName, -1)
        while index >= 0 {
            let value = unsafe X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, index))
            unsafe found.append(text(value))
            index = unsafe X509_NAME_get_index_by_NID(subject, NID_commonName, index)
        }
        return found
    }

    /// An ASN.1 string of any type in UTF-8; nil if it is not text.
    private static func text(_ value: UnsafePointer<ASN1_STRING>?) -> [UInt8]? {
        var bytes: UnsafeMutablePointer<UInt8>?
        let count = unsafe ASN1_STRING_to_UTF8(&bytes, value)
        defer { unsafe CRYPTO_free(bytes, nil, 0) }
        guard count >= 0, let bytes = unsafe bytes else { return nil }
        let text = unsafe Array(UnsafeBufferPointer(start: bytes, count: Int(count)))
        // OpenSSL takes the bytes of some types as they are.
        return String(validating: text, as: UTF8.self) == nil ? nil : text
    }
}

extension ClientCertificate {
    /// Reads a certificate.
    ///
    /// - Parameter certificate: An X509 object, which the caller keeps.
    convenience init(_ certificate: OpaquePointer) {
        let isASCII = { (name: [UInt8]) in name.allSatisfy { $0 < 0x80 } }
        let dnsName = unsafe Self.only(CertificateNames.alternative(certificate, kind: GEN_DNS), where: isASCII)
        unsafe self.init(
            uriName: Self.only(CertificateNames.alternative(certificate, kind: GEN_URI), where: isASCII),
            dnsName: dnsName.map { $0.map { UInt8(ascii: "A")...UInt8(ascii: "Z") ~= $0 ? $0 | 0x20 : $0 } },
            commonName: Self.only(CertificateNames.common(certificate), where: { _ in true })
        )
    }

    /// The only name of a list, if it can be used.
    private static func only(_ names: [[UInt8]?], where isUsable: ([UInt8]) -> Bool) -> [UInt8]? {
        guard names.count == 1, let name = names[0] else { return nil }
        return !name.isEmpty && !name.contains(0) && isUsable(name) ? name : nil
    }
}

/// Text in PEM, for OpenSSL to read; wiped and freed in `deinit`, as there may be keys in it.
@safe struct PEMText: ~Copyable {
    /// A BIO, from which each call of OpenSSL reads the next part.
    let source: OpaquePointer
    /// How many certificates begin in the text.
    let certificateCount: Int

    /// Much longer than any reasonable file of certificates.
    private static let sizeLimit = 1 << 20

    /// Reads a regular file without waiting for it.
    init(file path: String) throws(KeyFileError) {
        var bytes: [UInt8]
        do {
            bytes = try BlockingIO.contents(ofFile: path, limit: Self.sizeLimit).bytes
        } catch {
            throw KeyFileError(unreadable: path, error)
        }
        defer {
            unsafe bytes.withUnsafeMutableBytes { bytes in
                if let start = bytes.baseAddress { unsafe explicit_bzero(start, bytes.count) }
            }
        }
        // OpenSSL reads a block behind a byte order mark, and passes over one that is indented.
        let certificateCount = bytes.split(separator: UInt8(ascii: "\n")).count { line in
            line.drop { " \t\u{FEFF}".utf8.contains($0) }.starts(with: "-----BEGIN ".utf8)
                && line.contains("CERTIFICATE-----".utf8)
        }
        OpenSSLErrors.clear()
        let source = unsafe BIO_new(BIO_s_mem())
        // The copy that it takes is wiped when it is freed.
        let count = unsafe bytes.withUnsafeBytes { unsafe BIO_write(source, $0.baseAddress, Int32($0.count)) }
        guard let source = unsafe source, bytes.isEmpty || count == bytes.count else {
            unsafe BIO_free_all(source)
            throw .fromOpenSSL(path, "cannot be used")
        }
        unsafe self.source = unsafe source
        self.certificateCount = certificateCount
    }

    deinit {
        unsafe BIO_free_all(source)
    }
}

/// The certificates in a file, in its order unless they are sorted.
@safe final class PEMCertificates {
    /// X509 objects, which are freed with this.
    private(set) var all: [OpaquePointer] = unsafe []

    /// - Parameters:
    ///   - path: The file.
    ///   - problem: What is wrong with a file without a certificate; continues a sentence that begins with the path.
    init(file path: String, ifEmpty problem: String) throws(KeyFileError) {
        let text = try PEMText(file: path)
        while let certificate = unsafe PEM_read_bio_X509_AUX(text.source, nil, { _, _, _, _ in -1 }, nil) {
            unsafe all.append(certificate)
        }
        let end = OpenSSLErrors.drain().first
        let count = unsafe all.count
        // OpenSSL passes over a certificate that follows one without its END line.
        guard end?.isEndOfPEM == true, count > 0, count >= text.certificateCount else {
            let all = text.certificateCount
            let readable = count < all ? "only \(count) of its \(all)" : "only the first \(count)"
            let damage = """
                is damaged: \(readable) certificates can be read; give a PEM file in which all are whole, each from its BEGIN to \
                its END line, at the beginning of a line
                """
            throw .fromOpenSSL(path, count == 0 ? problem : damage, end?.isEndOfPEM == true ? nil : end)
        }
    }

    deinit {
        for index in indices { unsafe X509_free(all[index]) }
    }

    var indices: Range<Int> { unsafe all.indices }

    /// When a certificate expires, in seconds since 1970.
    func expiry(_ index: Int) -> Int64 { unsafe CertificateTime.expiry(all[index]) }

    /// Sorts the certificates as a server sends them: behind each one that of its issuer (RFC 8446, section 4.4.2).
    ///
    /// Of several for one issuer, the first that has not expired counts, as some clients try no other. The rest comes last: it may
    /// be a second path.
    func sortByIssuer() {
        let now = Int64(time(nil))
        var (sorted, rest) = ([0], Array(indices.dropFirst()))
        while let last = sorted.last {
            let issuers = rest.filter { unsafe X509_check_issued(all[$0], all[last]) == X509_V_OK }
            guard let issuer = issuers.first(where: { expiry($0) > now }) ?? issuers.first else { break }
            sorted.append(issuer)
            rest.removeAll { $0 == issuer }
        }
        unsafe all = (sorted + rest).map { unsafe all[$0] }
    }
}

extension KeyFileError {
    /// An error with OpenSSL's reason, if it has one.
    ///
    /// - Parameters:
    ///   - path: The file.
    ///   - problem: Continues a sentence that begins with the path.
    ///   - cause: By default the first error in OpenSSL's queue, which is then emptied.
    static func fromOpenSSL(
        _ path: String, _ problem: String, _ cause: OpenSSLErrors.Entry? = OpenSSLErrors.drain().first
    ) -> KeyFileError {
        KeyFileError(path, problem + (cause.map { " (OpenSSL: \($0.text))" } ?? ""))
    }
}

/// This thread's queue of OpenSSL errors (ERR_get_error(3)).
///
/// An error that a call leaves there would be taken for an error of the next call: the queue is cleared before a call and
/// drained after it.
enum OpenSSLErrors {
    /// One entry: its codes, and OpenSSL's text, which contains no data of the connection or the file.
    struct Entry {
        let library: Int32
        let reason: Int32
        let text: String

        /// The text in PEM has no further block of the kind that was asked for.
        var isEndOfPEM: Bool { library == Int32(ERR_LIB_PEM) && reason == PEM_R_NO_START_LINE }

        /// There already is a certificate whose key is of the same kind.
        var isOfSameKind: Bool { library == Int32(ERR_LIB_SSL) && reason == SSL_R_NOT_REPLACING_CERTIFICATE }

        /// The peer's certificate is not valid; the session knows why.
        var isFailedVerification: Bool {
            library == Int32(ERR_LIB_SSL) && reason == SSL_R_CERTIFICATE_VERIFY_FAILED
        }
    }

    /// Cheap if there is nothing to clear, as nearly always.
    @inline(__always)
    static func clear() {
        if ERR_peek_error() != 0 { ERR_clear_error() }
    }

    /// Removes and returns all entries, the one nearest to the cause first.
    static func drain() -> [Entry] {
        var entries: [Entry] = []
        while true {
            let code = ERR_get_error()
            guard code != 0 else { return entries }
            let (library, reason) = (ERR_GET_LIB(code), ERR_GET_REASON(code))
            let text =
                if library == Int32(ERR_LIB_SYS) {
                    SystemError(call: "", code: reason).reason
                } else if let words = unsafe ERR_reason_error_string(code) {
                    // A constant of the library.
                    unsafe String(cString: words)
                } else {
                    "error \(library):\(reason)"
                }
            entries.append(Entry(library: library, reason: reason, text: text))
        }
    }
}
