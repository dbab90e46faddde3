internal import Dispatch

/// Reads files that may have changed, one reading after the other, so that what is read last is used last.
///
/// Readings have a thread of Dispatch's: a file system that does not answer then holds up neither the files of other readers nor
/// Swift's tasks, whose threads are few.
///
/// Any thread.
final class FileReader: Sendable {
    private let queue: DispatchQueue

    init(_ files: String) {
        queue = DispatchQueue(label: files)
    }

    func run<Result: Sendable>(_ reading: @escaping @Sendable () -> Result) async -> Result {
        await withCheckedContinuation { continuation in
            queue.async { continuation.resume(returning: reading()) }
        }
    }
}
