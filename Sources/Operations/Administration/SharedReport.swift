internal import EventLoop

/// A report that takes some time to create and reads files, and is therefore created on another thread than the loop's.
///
/// Creates one report at a time, for all requests that arrived before it began. However many requests there are, Swift's
/// shared threads stay free for other work, such as signals.
///
/// Belongs to its loop's thread.
final class SharedReport<Report: Sendable>: @unchecked Sendable {
    // Unchecked: only tasks on the loop access the variables.

    private let loop: EventLoop
    private let make: @Sendable () -> Report
    private var waiting: [CheckedContinuation<Report, Never>] = []
    private var isMaking = false

    init(on loop: EventLoop, _ make: @escaping @Sendable () -> Report) {
        self.loop = loop
        self.make = make
    }

    /// Waits for a report that is begun after this call.
    func next() async -> Report {
        await withCheckedContinuation { continuation in
            waiting.append(continuation)
            guard !isMaking else { return }
            isMaking = true
            Task(executorPreference: loop) { await self.makeReports() }
        }
    }

    private func makeReports() async {
        while !waiting.isEmpty {
            let served = waiting
            waiting = []
            let report = await Task { [make] in make() }.value
            for continuation in served { continuation.resume(returning: report) }
        }
        isMaking = false
    }
}
