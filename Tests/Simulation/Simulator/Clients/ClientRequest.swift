/// A request of a client: its bytes, and which answer it must get.
struct ClientRequest {
    enum Purpose {
        /// A GET of an id's token.
        case get(id: Int)
        /// A POST, by the number of the write in the ledger.
        case post(write: Int)
        /// Gets status 200 without a body.
        case head
        /// Gets the contract's error with this code.
        case error(code: Int)
        /// Gets an error of HTTP, and the connection stays open.
        case httpError(status: Int)
        /// Cannot be read: gets an error of HTTP, and the connection is closed.
        case malformed(status: Int)
    }

    var purpose: Purpose
    var bytes: [UInt8] = []
    /// Where the body begins.
    var headLength = 0
    /// Whether the client asks to close the connection after the answer.
    var closes = false
    var isOldVersion = false
    var expectsContinue = false
    /// Whether it waits for `100 Continue` before it sends the body.
    var waitsForContinue = false
    /// The end of the request among all bytes that the client sends.
    var end = 0
}
