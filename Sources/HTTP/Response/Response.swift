/// An answer before it becomes bytes.
package struct Response: Sendable {
    package var status: Status
    package var body: [UInt8]
    /// Bytes that whoever sends the response appends after `body`; Content-Length has them as well.
    package var laterBytes: Int
    /// Where a redirect leads; checked by whoever sets it, as it is written as it stands.
    package var location: [UInt8]?
    /// The error code that the body holds, to be counted by; 0 for none, and for that of the status itself.
    package var code: UInt16

    package init(
        status: Status = .ok, body: [UInt8], laterBytes: Int = 0, location: [UInt8]? = nil, code: UInt16 = 0
    ) {
        self.status = status
        self.body = body
        self.laterBytes = laterBytes
        self.location = location
        self.code = code
    }
}
