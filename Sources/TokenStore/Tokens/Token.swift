/// A unique id and its token info.
package struct Token: Hashable, Sendable {
    package let id: [UInt8]
    package let info: [UInt8]

    package init(id: [UInt8], info: [UInt8]) {
        self.id = id
        self.info = info
    }

    /// Bytes of memory that a token takes while it waits to be written: its own, and what is kept beside them.
    package static func waitingBytes(id: [UInt8], info: [UInt8]) -> Int {
        id.count + info.count + 512
    }
}

/// The times of a row, in seconds since 1970.
package struct RowTimes: Hashable, Sendable {
    package let writtenAt: Int64
    /// When the token expires according to its token info; nil if that does not say.
    package let expiresAt: Int64?

    package init(writtenAt: Int64, expiresAt: Int64?) {
        self.writtenAt = writtenAt
        self.expiresAt = expiresAt
    }
}
