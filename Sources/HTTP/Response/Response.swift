/// An answer before it becomes bytes.
package struct Response: Sendable {
    package var status: Status
    package var body: [UInt8]
    /// Bytes that the sender appends after `body`; included in Content-Length.
    package var laterBytes: Int
    /// Where a redirect leads; it is written unchanged, so the caller must have checked it.
    package var location: [UInt8]?
    /// The contract's error code in the body of a response with status 200.
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
