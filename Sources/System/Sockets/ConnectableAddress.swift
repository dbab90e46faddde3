package import Glibc

/// An address that a socket can be bound or connected to.
package protocol ConnectableAddress {
    /// Such as `AF_UNIX`.
    var family: Int32 { get }

    /// Lends the address in the form that `bind` and `connect` take.
    func withPointer<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result
}

extension ConnectableAddress {
    /// A blocking stream socket that is connected to the address, for programs that do nothing but wait for an answer.
    ///
    /// - Parameter timeoutInSeconds: For connecting, and for each later call; nil waits without limit.
    package func connect(timeoutInSeconds: Int?) throws(SystemError) -> FileDescriptor {
        let descriptor = try FileDescriptor(socket: family, SOCK_STREAM.rawValue)
        if let timeoutInSeconds { try descriptor.setTimeout(seconds: timeoutInSeconds) }
        try connect(descriptor)
        return descriptor
    }

    /// Connects a socket.
    package func connect(_ descriptor: borrowing FileDescriptor) throws(SystemError) {
        let number = descriptor.number
        guard unsafe withPointer({ unsafe Glibc.connect(number, $0, $1) }) == 0 else {
            throw SystemError.last("connect")
        }
    }

    /// Binds a socket to the address.
    package func bind(_ descriptor: borrowing FileDescriptor) throws(SystemError) {
        let number = descriptor.number
        guard unsafe withPointer({ unsafe Glibc.bind(number, $0, $1) }) == 0 else { throw SystemError.last("bind") }
    }
}
