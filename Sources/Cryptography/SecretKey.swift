import COpenSSL
import Glibc

/// A key of 256 bits, wiped from memory when it is released.
///
/// Any thread. Printing it shows nothing of the key.
@safe package final class SecretKey: Sendable {
    /// Bytes of a key.
    package static let length = 32

    /// Owned; not written between `init` and `deinit`, so any thread may read it.
    private nonisolated(unsafe) let storage: UnsafeMutablePointer<UInt8>

    /// Copies a key.
    ///
    /// - Parameter bytes: Exactly `length` bytes, which the caller wipes.
    package init(_ bytes: Span<UInt8>) {
        precondition(bytes.count == Self.length, "a key has 32 bytes")
        unsafe storage = .allocate(capacity: Self.length)
        for index in 0..<Self.length { unsafe storage[index] = bytes[index] }
        // Kept off the swap device where the limits allow it (mlock(2)); nothing depends on it.
        _ = unsafe mlock(storage, Self.length)
    }

    deinit {
        unsafe explicit_bzero(storage, Self.length)
        unsafe storage.deallocate()
    }

    /// A new key from the system's generator.
    package static func random() -> SecretKey {
        var bytes = RandomBytes.secret(length)
        defer { wipe(&bytes) }
        return SecretKey(bytes.span)
    }

    /// Whether the bytes are equal; takes constant time.
    package func hasBytes(of other: SecretKey) -> Bool {
        unsafe CRYPTO_memcmp(storage, other.storage, Self.length) == 0
    }

    /// Calls `body` with the bytes.
    package func withBytes<Result>(_ body: (Span<UInt8>) -> Result) -> Result {
        unsafe body(Span(_unsafeStart: storage, count: Self.length))
    }

    /// Overwrites bytes with zeros; the compiler does not omit this.
    package static func wipe(_ bytes: inout [UInt8]) {
        unsafe bytes.withUnsafeMutableBytes { bytes in
            if let start = bytes.baseAddress { unsafe explicit_bzero(start, bytes.count) }
        }
    }
}

/// Text that must not get into a log, such as a password.
///
/// Printing it shows nothing of it. It is not wiped from memory, unlike a `SecretKey`: libraries that take text keep copies anyway.
package struct SecretText: Sendable, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// The secret itself.
    package let text: String

    package init(_ text: String) {
        self.text = text
    }

    package var description: String { "(secret)" }
    package var debugDescription: String { description }
    package var customMirror: Mirror { Mirror(self, children: []) }
}

/// Random bytes from OpenSSL's generators, which are seeded by the system's.
package enum RandomBytes {
    /// For keys and other secrets, from a generator that is used only for secrets (RAND_priv_bytes(3)).
    package static func secret(_ count: Int) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        guard unsafe RAND_priv_bytes(&bytes, Int32(count)) == 1 else {
            OpenSSLFailure.end("RAND_priv_bytes")
        }
        return bytes
    }

    /// For names and numbers that others get to see.
    package static func published(_ count: Int) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        guard unsafe RAND_bytes(&bytes, Int32(count)) == 1 else { OpenSSLFailure.end("RAND_bytes") }
        return bytes
    }
}
