import Glibc
import Metrics
import System

/// The kernel's figures about this process, from proc(5); 0 where a figure is not available.
struct ProcessMetrics: Sendable {
    /// The fields of `/proc/self/stat` from the third one, the state, on.
    private var fields: [Double] = []

    /// Processor time in user and kernel mode.
    var processorSeconds: Double { (self[11] + self[12]) / Self.ticks }
    /// Seconds since 1970.
    var startTime: Double { fields.isEmpty ? 0 : Self.bootTime + self[19] / Self.ticks }
    var threads: Double { self[17] }
    var virtualBytes: Double { self[20] }
    var residentBytes: Double { self[21] * Double(sysconf(Int32(_SC_PAGESIZE))) }
    /// How many are open, without the one that counting them uses.
    var descriptors: Int { max(0, (Folder.names(in: "/proc/self/fd")?.count ?? 0) - 1) }
    var descriptorLimit: UInt64 { UInt64(DescriptorLimit.current) }

    /// The current figures; reads files.
    static var now: ProcessMetrics {
        var metrics = ProcessMetrics()
        // The program's name, before the fields, may contain blanks.
        if let text = TextFile.contents(of: "/proc/self/stat"), let end = text.lastIndex(of: ")") {
            metrics.fields = text[text.index(after: end)...].split(separator: " ").map { Double($0) ?? 0 }
        }
        return metrics
    }

    private subscript(index: Int) -> Double { index < fields.count ? fields[index] : 0 }

    private static let ticks = Double(max(1, sysconf(Int32(_SC_CLK_TCK))))

    /// When the machine was started, in seconds since 1970; not from /proc/stat, which a service with `ProcSubset=pid` does not see.
    private static let bootTime = Double(UTCTime.microseconds()) / 1e6 - SystemUptime.now
}

extension MetricsText {
    /// The standard figures of a process (prometheus.io/docs/instrumenting/writing_clientlibs, "Process metrics").
    mutating func add(_ process: ProcessMetrics) {
        single("process_cpu_seconds_total", "Processor time in user and kernel mode.", process.processorSeconds)
        single(
            "process_start_time_seconds", "When the process started, in seconds since 1970.", process.startTime)
        single("process_virtual_memory_bytes", "Size of the address space.", process.virtualBytes)
        single("process_resident_memory_bytes", "Resident memory.", process.residentBytes)
        single("process_threads", "Number of threads.", process.threads)
        single("process_open_fds", "Open descriptors.", process.descriptors)
        single("process_max_fds", "Limit of open descriptors.", process.descriptorLimit)
    }
}
