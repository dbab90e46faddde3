/// Small text files, such as those of the kernel below /proc and /sys, whose size is known only by reading them.
package enum TextFile {
    /// The whole text; nil if the file cannot be read or is not UTF-8.
    package static func contents(of path: String) -> String? {
        head(of: path, count: .max).flatMap { String(validating: $0, as: UTF8.self) }
    }

    /// The first bytes of a file; nil if it cannot be read.
    package static func head(of path: String, count: Int) -> [UInt8]? {
        guard let descriptor = try? FileDescriptor(openingFile: path) else { return nil }
        return try? BlockingIO.read(from: descriptor.number, limit: count)
    }
}

extension [UInt8] {
    /// The bytes of a text without the byte order mark that some editors put first.
    package var withoutByteOrderMark: ArraySlice<UInt8> {
        starts(with: [0xef, 0xbb, 0xbf]) ? dropFirst(3) : self[...]
    }
}
