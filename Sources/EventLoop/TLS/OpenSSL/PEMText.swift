internal import COpenSSL
internal import Glibc
internal import System

/// Text in PEM, for OpenSSL to read; wiped and freed in `deinit`, as there may be keys in it.
@safe struct PEMText: ~Copyable {
    /// A BIO, which OpenSSL reads from its place on.
    let source: OpaquePointer

    /// Longer than any file of certificates that somebody has looked through.
    private static let sizeLimit = 1 << 20

    /// Reads a plain file, without waiting for it.
    init(file path: String) throws(TLSConfigurationError) {
        var bytes = try Self.contents(of: path)
        defer {
            unsafe bytes.withUnsafeMutableBytes { bytes in
                if let start = bytes.baseAddress { unsafe explicit_bzero(start, bytes.count) }
            }
        }
        try self.init(bytes[...], of: path)
    }

    /// A part of a file.
    init(_ bytes: ArraySlice<UInt8>, of path: String) throws(TLSConfigurationError) {
        OpenSSLErrors.clear()
        let source = unsafe BIO_new(BIO_s_mem())
        // The copy that it takes is wiped when it is freed.
        let count = unsafe bytes.withUnsafeBytes { unsafe BIO_write(source, $0.baseAddress, Int32($0.count)) }
        guard let source = unsafe source, bytes.isEmpty || count == bytes.count else {
            unsafe BIO_free_all(source)
            throw .fromOpenSSL(path, .unusable)
        }
        unsafe self.source = unsafe source
    }

    deinit {
        unsafe BIO_free_all(source)
    }

    static func contents(of path: String) throws(TLSConfigurationError) -> [UInt8] {
        do throws(SystemError) {
            return try BlockingIO.contents(ofFile: path, limit: sizeLimit)
        } catch {
            throw TLSConfigurationError(file: path, problem: .unreadable(error), reason: "")
        }
    }
}

extension TLSConfigurationError {
    /// An error with OpenSSL's reason, which is removed from its queue.
    static func fromOpenSSL(_ file: String, _ problem: Problem) -> TLSConfigurationError {
        TLSConfigurationError(file: file, problem: problem, reason: OpenSSLErrors.drain().first?.text ?? "")
    }
}
