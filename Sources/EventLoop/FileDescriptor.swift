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
        // EINTR included, Linux has freed the number by the time close returns (close(2)): a retry could hit a stranger's.
        _ = close(number)
    }
}
