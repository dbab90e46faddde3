internal import EventLoop

/// Something that takes a moment to make and reads files, so that it is made on another thread than a loop's.
///
/// One is made at a time, for all who have asked before it was begun: however many ask, the threads that tasks share keep
/// time for the rest, signals among it.
///
/// Belongs to its loop's thread.
final class SharedReport<Report: Sendable>: @unchecked Sendable {
    // Unchecked: only tasks on the loop touch what changes.

    private let loop: EventLoop
    private let make: @Sendable () -> Report
    private var askers: [CheckedContinuation<Report, Never>] = []
    private var isMaking = false

    init(on loop: EventLoop, _ make: @escaping @Sendable () -> Report) {
        self.loop = loop
        self.make = make
    }

    /// One that was begun after this call.
    func next() async -> Report {
        await withCheckedContinuation { asker in
            askers.append(asker)
            guard !isMaking else { return }
            isMaking = true
            Task(executorPreference: loop) { await self.makeForAskers() }
        }
    }

    private func makeForAskers() async {
        while !askers.isEmpty {
            let served = askers
            askers = []
            let report = await Task { [make] in make() }.value
            for asker in served { asker.resume(returning: report) }
        }
        isMaking = false
    }
}
