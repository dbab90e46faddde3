internal import EventLoop
internal import HTTP

extension Connection {
    /// Bytes that the connection holds while it waits.
    var waitingBytes: Int { reader.bytes.capacity + output.capacity + longWork.bytes }

    /// Replaces the number of bytes that are counted for this connection.
    ///
    /// - Returns: False if `limits.buffers` leaves no room for them; then nothing changes.
    mutating func account(for bytes: Int, on worker: Worker) -> Bool {
        if bytes > countedBytes {
            guard worker.bufferBudget.take(bytes - countedBytes) else { return false }
        } else if bytes < countedBytes {
            worker.bufferBudget.giveBack(countedBytes - bytes)
        }
        countedBytes = bytes
        return true
    }

    /// Takes the buffers that the connection does not have.
    mutating func takeBuffers(of worker: Worker) {
        var pair = worker.takeBuffers()
        if reader.bytes.capacity == 0 { swap(&reader.bytes, &pair.input) }
        if output.capacity == 0 { swap(&output, &pair.output) }
    }

    /// Returns the buffers to the pool, or frees the one that there is, if both are empty.
    mutating func releaseBuffers(to worker: Worker) {
        guard output.isEmpty else { return }
        guard let input = reader.takeEmptyBuffer() else {
            // A large input buffer was freed before, which leaves the output's alone.
            if reader.isEmpty { output = [] }
            return
        }
        var pair = BufferPool.Pair(input: input)
        swap(&pair.output, &output)
        worker.giveBuffers(pair)
    }

    /// Frees memory that the connection can do without, if memory is scarce.
    mutating func shrinkBuffers(on worker: Worker) {
        if worker.bufferBudget.isScarce { releaseRoom() }
    }

    /// Frees memory that the connection can do without.
    mutating func releaseRoom() {
        if output.isEmpty { output = [] }
        reader.releaseRoom()
    }
}
