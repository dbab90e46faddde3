import Glibc
import Synchronization
import TokenStore

/// Shows progress in a line on the terminal; does nothing if standard error is not a terminal.
///
/// Any thread.
final class ProgressBar: Sendable {
    private let title: String
    private let isShown = isatty(STDERR_FILENO) == 1
    private let lastLine = Mutex("")
    /// When the first progress was shown, and that.
    private let beginning = Mutex<(time: ContinuousClock.Instant, share: Double)?>(nil)
    private static let width = 30

    /// - Parameter title: Names the work, such as `Verifying`.
    init(_ title: String) {
        self.title = title
    }

    func show(_ progress: StoreProgress) {
        guard isShown else { return }
        let total = max(progress.total, 1)
        let share = min(max(Double(progress.done) / Double(total), 0), 1)
        let filled = Int(share * Double(Self.width))
        let bar = String(repeating: "#", count: filled) + String(repeating: ".", count: Self.width - filled)
        write("\r\(title) [\(bar)] \(Int(share * 100)) %\(remaining(at: share))\u{1B}[K")
    }

    /// About how long it still takes, from the third second on; empty before.
    private func remaining(at share: Double) -> String {
        let now = ContinuousClock.now
        let (began, first) = beginning.withLock { beginning in
            if beginning == nil { beginning = (now, share) }
            return beginning ?? (now, share)
        }
        let elapsed = now - began
        guard elapsed > .seconds(2), share > first else { return "" }
        return ", \(Text.age((elapsed * ((1 - share) / (share - first))).components.seconds)) left"
    }

    /// Removes the bar from the terminal.
    func finish() {
        guard isShown else { return }
        write("\r\u{1B}[K")
    }

    private func write(_ line: String) {
        let isNew = lastLine.withLock { last in
            defer { last = line }
            return last != line
        }
        if isNew { StandardError.write(line) }
    }
}
