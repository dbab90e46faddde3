internal import Glibc

extension FileDescriptor {
    /// A new socket, close-on-exec.
    ///
    /// - Parameters:
    ///   - family: Such as `AF_UNIX`.
    ///   - type: `SOCK_STREAM` or `SOCK_DGRAM`, if wanted with `SOCK_NONBLOCK`.
    package init(socket family: Int32, _ type: UInt32) throws(SystemError) {
        let number = socket(family, Int32(type | SOCK_CLOEXEC.rawValue), 0)
        guard number >= 0 else { throw SystemError.last("socket") }
        self.init(owning: number)
    }

    /// Turns a socket option on.
    ///
    /// - Parameter name: The option's name, for the error.
    package func setOption(_ level: Int32, _ option: Int32, _ name: String) throws(SystemError) {
        var on: Int32 = 1
        guard unsafe setsockopt(number, level, option, &on, socklen_t(MemoryLayout<Int32>.size)) == 0 else {
            throw SystemError.last("setsockopt \(name)")
        }
    }

    /// Lets connecting and each later call on a blocking socket fail after a time.
    package func setTimeout(seconds: Int) throws(SystemError) {
        var time = timeval(tv_sec: seconds, tv_usec: 0)
        // Connecting has the time of sending (socket(7)).
        for (option, name) in [(SO_RCVTIMEO, "SO_RCVTIMEO"), (SO_SNDTIMEO, "SO_SNDTIMEO")] {
            let size = socklen_t(MemoryLayout<timeval>.size)
            guard unsafe setsockopt(number, SOL_SOCKET, option, &time, size) == 0 else {
                throw SystemError.last("setsockopt \(name)")
            }
        }
    }
}
