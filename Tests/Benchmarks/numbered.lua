-- Sends requests with random numbers in them: wrk -s numbered.lua URL -- TEMPLATE is for string.format, with a place for the number, 0 to COUNT - 1, and perhaps one for a user. Before each
-- request a connection waits for a random time of PAUSE milliseconds on average, so that the connections do not run in
-- step.

dofile(debug.getinfo(1, "S").source:match("@(.*/)") .. "figures.lua")

local template, count, pause

function init(arguments)
   template, count, pause = arguments[1], tonumber(arguments[2]), tonumber(arguments[4])
   math.randomseed(tonumber(arguments[3]))
   -- wrk only waits if this function exists.
   if pause > 0 then
      function delay() return math.random(0, 2 * pause) end
   end
end

function request()
   return string.format(template, math.random(0, count - 1), unused_user())
end
