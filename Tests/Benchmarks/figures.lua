-- Loaded by the scripts: prints the last line of the output, which measurement.py reads.

function done(summary, latency)
   local errors = summary.errors
   local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
   io.write(string.format(
      "figures %d %d %d %d %d %d %d\n", summary.requests, summary.duration, summary.bytes, failed,
      latency:percentile(50), latency:percentile(99), latency.max
   ))
end
