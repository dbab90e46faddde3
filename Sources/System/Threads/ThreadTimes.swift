internal import Glibc

/// The processor time of each thread of the process.
package enum ThreadTimes {
    /// Seconds in user and kernel mode by the thread's name.
    ///
    /// Threads with the same name are added up. Reads files.
    package static var now: [String: Double] {
        let ticks = Double(max(1, sysconf(Int32(_SC_CLK_TCK))))
        var times: [String: Double] = [:]
        for thread in Folder.names(in: "/proc/self/task") ?? [] {
            // proc(5): the name is in brackets and may contain any character; user and kernel time are fields 14 and 15.
            guard let text = TextFile.contents(of: "/proc/self/task/\(thread)/stat"),
                let start = text.firstIndex(of: "("), let end = text.lastIndex(of: ")")
            else { continue }
            let fields = text[text.index(after: end)...].split(separator: " ")
            guard fields.count > 12, let user = Double(fields[11]), let kernel = Double(fields[12]) else { continue }
            times[String(text[text.index(after: start)..<end]), default: 0] += (user + kernel) / ticks
        }
        return times
    }
}
