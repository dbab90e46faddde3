internal import COpenSSL
internal import Glibc
internal import System

/// This thread's queue of OpenSSL errors (ERR_get_error(3)).
///
/// An error that a call leaves there would be taken for an error of the next call: the queue is cleared before a call and
/// drained after it.
enum OpenSSLErrors {
    /// One entry: its codes, and OpenSSL's text, which has no data of the connection or the file.
    struct Entry {
        let library: Int32
        let reason: Int32
        let text: String

        /// There is no further block of the kind that was asked for in a text in PEM.
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
