-- Sends requests of a file in random order: wrk -s replay.lua URL -- FILE REQUEST_BYTES SEED
-- All requests of the file have the same length. The last line of the output is for measurement.py.

local requests = {}

function init(arguments)
   local file = assert(io.open(arguments[1], "rb"))
   local size = tonumber(arguments[2])
   for request in function() return file:read(size) end do
      requests[#requests + 1] = request
   end
   file:close()
   math.randomseed(tonumber(arguments[3]))
end

function request()
   return requests[math.random(#requests)]
end

function done(summary, latency)
   local errors = summary.errors
   local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
   io.write(string.format(
      "figures %d %d %d %d %d %d\n",
      summary.requests, summary.duration, summary.bytes, failed, latency:percentile(50), latency:percentile(99)
   ))
end
