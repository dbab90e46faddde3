internal import Glibc

extension SocketAddress {
    /// A socket that is connected to the address and blocks, for programs that ask a server something.
    ///
    /// - Parameter seconds: How long connecting, and each later call, may take; nil for any time.
    package func connect(timeoutInSeconds seconds: Int?) throws(SystemError) -> FileDescriptor {
        let number = socket(family, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard number >= 0 else { throw SystemError.last("socket") }
        let descriptor = FileDescriptor(owning: number)
        if let seconds { descriptor.setTimeout(seconds: seconds) }
        guard unsafe withPointer({ unsafe Glibc.connect(number, $0, $1) }) == 0 else {
            throw SystemError.last("connect")
        }
        return descriptor
    }
}

extension FileDescriptor {
    /// Has connecting and each later call on a socket that blocks fail after a time.
    package func setTimeout(seconds: Int) {
        var time = timeval(tv_sec: seconds, tv_usec: 0)
        // Connecting has the time of sending (socket(7)).
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            _ = unsafe setsockopt(number, SOL_SOCKET, option, &time, socklen_t(MemoryLayout<timeval>.size))
        }
    }
}
