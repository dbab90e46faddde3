-- Sends requests of a file in random order: wrk -s replay.lua URL -- FILE REQUEST_BYTES SEED USER_OFFSET
-- All requests of the file have the same length. Each gets a new user at the offset, unless that is negative.

dofile(debug.getinfo(1, "S").source:match("@(.*/)") .. "figures.lua")

local requests, user_offset = {}

function init(arguments)
   local file = assert(io.open(arguments[1], "rb"))
   local size = tonumber(arguments[2])
   for request in function() return file:read(size) end do
      requests[#requests + 1] = request
   end
   file:close()
   math.randomseed(tonumber(arguments[3]))
   user_offset = tonumber(arguments[4])
end

function request()
   local text = requests[math.random(#requests)]
   if user_offset < 0 then return text end
   local user = unused_user()
   return text:sub(1, user_offset) .. user .. text:sub(user_offset + #user + 1)
end
