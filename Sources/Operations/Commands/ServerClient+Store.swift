internal import TokenStore

extension ServerClient {
    /// Sends a request for the store to a running server, and waits for the reply.
    ///
    /// - Parameters:
    ///   - request: Sent as JSON.
    ///   - progress: Called repeatedly with the progress of the work.
    func perform<Request: StoreRequest>(
        _ request: Request, _ progress: (StoreProgress) -> Void
    ) throws(Failure) -> Request.Reply {
        guard let body = try? OperationsJSON.encode(request) else { throw .refused("the request cannot be encoded") }
        guard body.count <= ControlSocketAddress.bodyLimit else {
            throw .refused(
                """
                this takes \(body.count >> 20) MiB as JSON, and a running server accepts requests of up to \
                \(ControlSocketAddress.bodyLimit >> 20) MiB; stop the server, do it then, and start it again
                """
            )
        }
        var reply: Request.Reply?
        try post("/store/\(Request.name.rawValue)", body) { (text) throws(Failure) in
            guard let line = try? OperationsJSON.decode(ControlLine<Request.Reply>.self, from: text) else {
                return true
            }
            if let error = line.error { throw .refused(error) }
            if let done = line.progress { progress(done) }
            reply = line.reply
            return reply == nil
        }
        guard let reply else { throw .noAnswer }
        return reply
    }
}
