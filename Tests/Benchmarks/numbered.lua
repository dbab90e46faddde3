-- Sends requests with random numbers in them: wrk -s numbered.lua URL -- TEMPLATE COUNT SEED
-- TEMPLATE is for string.format, with a place for the number, 0 to COUNT - 1, and perhaps one for a user.

dofile(debug.getinfo(1, "S").source:match("@(.*/)") .. "figures.lua")

local template, count

function init(arguments)
   template, count = arguments[1], tonumber(arguments[2])
   math.randomseed(tonumber(arguments[3]))
end

function request()
   return string.format(template, math.random(0, count - 1), unused_user())
end
