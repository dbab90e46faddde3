-- Sends requests of a file in random order: wrk -s replay.lua URL -- FILE REQUEST_BYTES SEED
-- All requests of the file have the same length.

dofile(debug.getinfo(1, "S").source:match("@(.*/)") .. "figures.lua")

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
