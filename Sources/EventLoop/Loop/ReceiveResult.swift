/// The outcome of reading from a stream.
package enum ReceiveResult: Equatable {
    /// This many bytes, at least one, were appended.
    case received(Int)
    /// Nothing has arrived yet: wait until the stream is readable.
    case wouldBlock
    /// The peer has closed its sending side, and everything that it sent was read.
    case endOfInput
}
