-- Sends requests of a file in random order at a rate: wrk -s paced.lua URL -- FILE REQUEST_BYTES SEED USER_OFFSET RATE
-- A request is due every 1/RATE seconds, on any free connection; late requests are sent at once, so all servers get the
-- same load however fast they are. wrk's timers count milliseconds: requests due within one are sent together.

local ffi = require("ffi")
ffi.cdef[[
   struct timespec { long seconds; long nanoseconds; };
   int clock_gettime(int clock, struct timespec *now);
]]

dofile(debug.getinfo(1, "S").source:match("@(.*/)") .. "replay.lua")

local read_requests, monotonic, now = init, 1, ffi.new("struct timespec")
local interval, due

local function milliseconds()
   ffi.C.clock_gettime(monotonic, now)
   return tonumber(now.seconds) * 1e3 + tonumber(now.nanoseconds) / 1e6
end

function init(arguments)
   read_requests(arguments)
   interval = 1e3 / tonumber(arguments[5])
end

function delay()
   local time = milliseconds()
   due = (due or time) + interval
   return math.max(0, due - time)
end
