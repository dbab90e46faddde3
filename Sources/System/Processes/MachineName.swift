internal import Glibc

/// The name of this machine.
package enum MachineName {
    /// As gethostname(2) has it; empty if the system does not tell.
    package static var current: String {
        // HOST_NAME_MAX is 64 (gethostname(2)); the last byte stays 0.
        var bytes = [CChar](repeating: 0, count: 256)
        guard unsafe gethostname(&bytes, bytes.count - 1) == 0 else { return "" }
        return String(decoding: bytes.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
