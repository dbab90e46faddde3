internal import Glibc

/// The one owner of an open descriptor, which it closes when it goes.
package struct FileDescriptor: ~Copyable, Sendable {
    package let number: Int32

    /// Takes over a descriptor that nobody else will close.
    package init(owning number: Int32) {
        precondition(number >= 0, "a descriptor is never negative")
        self.number = number
    }

    deinit {
        // Even after EINTR Linux has freed the number when close returns (close(2)): a retry could close another file.
        _ = close(number)
    }
}
