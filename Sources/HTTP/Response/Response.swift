/// An answer before it becomes bytes.
package struct Response: Sendable {
    package var status: Status
    package var body: [UInt8]
    /// Bytes that whoever sends the response appends after `body`; Content-Length has them as well.
    package var laterBytes: Int
    /// Where a redirect leads; checked by whoever sets it, as it is written as it stands.
    package var location: [UInt8]?
    /// What the body tells, where the status is 200.
    package var code: ErrorCode

    package init(
        status: Status = .ok, body: [UInt8], laterBytes: Int = 0, location: [UInt8]? = nil, code: ErrorCode = .none
    ) {
        self.status = status
        self.body = body
        self.laterBytes = laterBytes
        self.location = location
        self.code = code
    }
}
