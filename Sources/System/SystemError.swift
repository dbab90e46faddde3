import Glibc

/// A system call that failed, with the call's name and its `errno`.
package struct SystemError: Error, Hashable, CustomStringConvertible {
    /// The C function, for example `bind`.
    package let call: String
    /// The value of `errno` right after the call.
    package let code: Int32

    package init(call: String, code: Int32) {
        self.call = call
        self.code = code
    }

    /// The error in `errno`: call this before anything else can change it.
    package static func last(_ call: String) -> SystemError {
        SystemError(call: call, code: errno)
    }

    /// In place of an `errno`: a path leads to a folder, pipe, socket or device instead of a regular file.
    package static let notPlain: Int32 = -1

    /// The text of the code alone: `Address already in use`.
    package var reason: String { Self.reason(code) }

    /// The system's text for an `errno`.
    package static func reason(_ code: Int32) -> String {
        if code == notPlain { return "it is no regular file" }
        // strerror's text belongs to glibc and stays valid until this thread's next call.
        return unsafe String(cString: strerror(code))
    }

    /// What an operator can do about a lack of descriptors or memory, as the end of an error message; nil for other errors.
    package var shortageAdvice: String? {
        switch code {
        case EMFILE: "; raise the limit of open files with ulimit -n or LimitNOFILE="
        case ENFILE: "; the whole machine has too many files open: raise that limit with sysctl fs.file-max"
        case ENOMEM, ENOBUFS: "; the machine or its container is short of memory: free some, or raise MemoryMax="
        default: nil
        }
    }

    /// What an operator can do after a call on a file has failed with this error.
    ///
    /// - Parameter otherwise: The advice for all other codes, most of which mean that access was denied.
    /// - Returns: The end of an error message, such as `; make room on its disk`.
    package func fileAdvice(otherwise: String) -> String {
        switch code {
        case ENOSPC, EDQUOT: "; make room on its disk"
        case EIO: "; look for errors of its disk in the kernel's log (dmesg)"
        case Self.notPlain, EISDIR: "; name a regular file"
        case EFBIG: "; name the right file"
        case ELOOP: "; it, or a folder in its path, is a link: put the file itself there"
        default: shortageAdvice ?? "; \(otherwise)"
        }
    }

    package var description: String { "\(call): \(reason)" }

    package var isPermissionDenied: Bool { code == EACCES || code == EPERM }
}
