/// An answer before it becomes bytes.
package struct Response: Sendable {
    package var status: Status
    package var body: [UInt8]
    /// Where a redirect leads; checked by whoever sets it, as it is written as it stands.
    package var location: [UInt8]?

    package init(status: Status = .ok, body: [UInt8], location: [UInt8]? = nil) {
        self.status = status
        self.body = body
        self.location = location
    }
}
