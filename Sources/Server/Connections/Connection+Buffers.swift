internal import EventLoop
internal import HTTP

extension Connection {
    /// Bytes that it holds while it waits.
    var waitingBytes: Int { reader.bytes.capacity + output.capacity + longWork.bytes }

    /// Counts so many bytes for this connection from now on, in place of those before.
    ///
    /// - Returns: False when `limits.buffers` leaves no room for them; then those before stay counted.
    mutating func account(for bytes: Int, on worker: Worker) -> Bool {
        if bytes > countedBytes {
            guard worker.bufferBudget.take(bytes - countedBytes) else { return false }
        } else if bytes < countedBytes {
            worker.bufferBudget.giveBack(countedBytes - bytes)
        }
        countedBytes = bytes
        return true
    }

    /// Takes the buffers that it has not.
    mutating func takeBuffers(of worker: Worker) {
        var pair = worker.takeBuffers()
        if reader.bytes.capacity == 0 { swap(&reader.bytes, &pair.input) }
        if output.capacity == 0 { swap(&output, &pair.output) }
    }

    /// Gives the buffers back if there is nothing in them.
    mutating func releaseBuffers(to worker: Worker) {
        guard output.isEmpty, let input = reader.takeEmptyBuffer() else { return }
        var pair = BufferPool.Pair(input: input)
        swap(&pair.output, &output)
        worker.giveBuffers(pair)
    }

    /// Gives up what it can do without in a wait in the middle of a request, when memory is scarce.
    mutating func shrinkBuffers(on worker: Worker) {
        if worker.bufferBudget.isScarce { releaseRoom() }
    }

    /// Gives up what it can do without.
    mutating func releaseRoom() {
        if output.isEmpty { output = [] }
        reader.releaseRoom()
    }
}
