-- Sends requests with random numbers in them: wrk -s numbered.lua URL -- TEMPLATE COUNT SEED PAUSE
-- The template is string.format's; the numbers are 0 to COUNT - 1. A connection waits PAUSE milliseconds on average, at
-- random and so not in step with the others, before each request.

dofile(debug.getinfo(1, "S").source:match("@(.*/)") .. "figures.lua")

local template, count, pause

function init(arguments)
   template, count, pause = arguments[1], tonumber(arguments[2]), tonumber(arguments[4])
   math.randomseed(tonumber(arguments[3]))
   -- wrk asks only where there is such a function.
   if pause > 0 then
      function delay() return math.random(0, 2 * pause) end
   end
end

function request()
   return string.format(template, math.random(0, count - 1))
end
