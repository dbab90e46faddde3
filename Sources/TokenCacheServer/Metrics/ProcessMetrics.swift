internal import Foundation
internal import Glibc
internal import Metrics

/// What the kernel knows of this process, by the names that all Prometheus clients use
/// (prometheus.io/docs/instrumenting/writing_clientlibs, "Process metrics"); from proc(5).
enum ProcessMetrics {
    static func write(to text: inout MetricsText) {
        let fields = statistics
        let ticks = Double(max(1, sysconf(Int32(_SC_CLK_TCK))))
        if fields.count > 21 {
            text.single(
                "process_cpu_seconds_total", .counter, "Processor time in user and kernel mode.",
                (fields[11] + fields[12]) / ticks
            )
            text.single(
                "process_start_time_seconds", .gauge, "When the process started, in seconds since 1970.",
                bootTime + fields[19] / ticks
            )
            text.single("process_virtual_memory_bytes", .gauge, "Address space.", fields[20])
            text.single(
                "process_resident_memory_bytes", .gauge, "Memory that is in use.",
                fields[21] * Double(sysconf(Int32(_SC_PAGESIZE)))
            )
            text.single("process_threads", .gauge, "Threads.", fields[17])
        }
        if let descriptors = try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd") {
            // Less the one of this look.
            text.single("process_open_fds", .gauge, "Open descriptors.", UInt64(max(0, descriptors.count - 1)))
        }
        var limit = rlimit()
        if unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 {
            text.single("process_max_fds", .gauge, "Descriptors that may be open.", UInt64(limit.rlim_cur))
        }
    }

    /// The fields of `/proc/self/stat` from the third, the state, on: what precedes it may hold anything.
    private static var statistics: [Double] {
        guard let text = try? String(contentsOfFile: "/proc/self/stat", encoding: .utf8),
            let end = text.lastIndex(of: ")")
        else { return [] }
        return text[text.index(after: end)...].split(separator: " ").map { Double($0) ?? 0 }
    }

    /// Seconds since 1970.
    private static var bootTime: Double {
        let text = (try? String(contentsOfFile: "/proc/stat", encoding: .utf8)) ?? ""
        let line = text.split(separator: "\n").first { $0.hasPrefix("btime ") }
        return line.flatMap { Double($0.dropFirst("btime ".count)) } ?? 0
    }
}
