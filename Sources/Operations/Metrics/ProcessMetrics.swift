import Glibc
import Metrics
import System

/// The kernel's figures about this process, from proc(5); 0 where a figure is not available.
struct ProcessMetrics: Sendable {
    /// Processor time in user and kernel mode.
    private(set) var processorSeconds = 0.0
    /// Seconds since 1970.
    private(set) var startTime = 0.0
    private(set) var virtualBytes = 0.0
    private(set) var residentBytes = 0.0
    private(set) var threads = 0.0

    /// How many are open, without the one that counting them uses.
    var descriptors: Int { max(0, (Folder.names(in: "/proc/self/fd")?.count ?? 0) - 1) }
    var descriptorLimit: UInt64 { UInt64(DescriptorLimit.current) }

    /// The current figures; reads files.
    static var now: ProcessMetrics {
        var metrics = ProcessMetrics()
        let fields = statistics
        let ticks = Double(max(1, sysconf(Int32(_SC_CLK_TCK))))
        if fields.count > 21 {
            metrics.processorSeconds = (fields[11] + fields[12]) / ticks
            metrics.startTime = bootTime + fields[19] / ticks
            metrics.virtualBytes = fields[20]
            metrics.residentBytes = fields[21] * Double(sysconf(Int32(_SC_PAGESIZE)))
            metrics.threads = fields[17]
        }
        return metrics
    }

    /// Writes the figures under the standard names (prometheus.io/docs/instrumenting/writing_clientlibs, "Process metrics").
    func write(to text: inout MetricsText) {
        text.single(
            "process_cpu_seconds_total", .counter, "Processor time in user and kernel mode.", processorSeconds
        )
        text.single(
            "process_start_time_seconds", .gauge, "When the process started, in seconds since 1970.", startTime
        )
        text.single("process_virtual_memory_bytes", .gauge, "Size of the address space.", virtualBytes)
        text.single("process_resident_memory_bytes", .gauge, "Resident memory.", residentBytes)
        text.single("process_threads", .gauge, "Number of threads.", threads)
        text.single("process_open_fds", .gauge, "Open descriptors.", descriptors)
        text.single("process_max_fds", .gauge, "Limit of open descriptors.", descriptorLimit)
    }

    /// The fields of `/proc/self/stat` from the third one, the state, on; the program's name before it may contain blanks.
    private static var statistics: [Double] {
        guard let text = TextFile.contents(of: "/proc/self/stat"),
            let end = text.lastIndex(of: ")")
        else { return [] }
        return text[text.index(after: end)...].split(separator: " ").map { Double($0) ?? 0 }
    }

    /// When the machine was started, in seconds since 1970.
    private static let bootTime: Double = {
        let text = TextFile.contents(of: "/proc/stat") ?? ""
        let line = text.split(separator: "\n").first { $0.hasPrefix("btime ") }
        return line.flatMap { Double($0.dropFirst("btime ".count)) } ?? 0
    }()
}
