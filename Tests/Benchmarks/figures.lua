-- Loaded by the scripts.

local user = os.time() % 1e6 * 1e9

-- Fifteen digits that were in no request before, of this run or of an earlier one.
function unused_user()
   user = user + 1
   return string.format("%015d", user)
end

-- Prints the last line of the output, which measurement.py reads.

function done(summary, latency)
   local errors = summary.errors
   local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
   io.write(string.format(
      "figures %d %d %d %d %d %d\n", summary.requests, summary.duration, summary.bytes, failed,
      latency:percentile(50), latency:percentile(99)
   ))
end
