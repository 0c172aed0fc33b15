-- The requests of wrk and its report. wrk.py passes the options in the environment, where no other user can read the key.
-- In the path and the body, {n} is a number that no other request has, and {object} that of one of the seeded objects.
-- The bodies of PUT are objects as the server has returned them last, with another display name.

local ffi = require("ffi")
ffi.cdef("typedef struct { long seconds, nanoseconds; } clock_time; int clock_gettime(int clock, clock_time *result);")
local MONOTONIC = 1

local method = os.getenv("BENCH_METHOD")
local path = os.getenv("BENCH_PATH")
local body = os.getenv("BENCH_BODY")
local bodies_file = os.getenv("BENCH_BODIES")
local objects = tonumber(os.getenv("BENCH_OBJECTS"))
local limit = tonumber(os.getenv("BENCH_LIMIT"))
local pause_ms = tonumber(os.getenv("BENCH_PAUSE_MS"))
local n = tonumber(os.getenv("BENCH_FIRST"))
local last

wrk.headers["authorization"] = os.getenv("BENCH_AUTHORIZATION")
if body == "" and bodies_file == "" then
    body = nil
else
    wrk.headers["content-type"] = os.getenv("BENCH_CONTENT_TYPE")
end

-- Each thread of wrk runs this script on its own, so each gets the start of its own numbers.
local threads = {}
function setup(thread)
    thread:set("thread_number", #threads)
    table.insert(threads, thread)
end

local function read_clock_us()
    local now = ffi.new("clock_time")
    ffi.C.clock_gettime(MONOTONIC, now)
    return tonumber(now.seconds) * 1e6 + tonumber(now.nanoseconds) / 1e3
end

-- A queue of bodies. An object is not in it while its update is in progress, so no two updates conflict.
local bodies, next_body, last_body = {}, 1, 0
local function add_body(text)
    last_body = last_body + 1
    bodies[last_body] = text
end

local started_us
function init()
    n = n + thread_number * tonumber(os.getenv("BENCH_STRIDE"))
    last = n + limit
    started_us = read_clock_us()
    if bodies_file ~= "" then
        local thread_count, line_number = tonumber(os.getenv("BENCH_THREADS")), 0
        for line in io.lines(bodies_file) do
            if line_number % thread_count == thread_number then
                add_body(line)
            end
            line_number = line_number + 1
        end
    end
end

local function fill_placeholders(text)
    if text == nil or not text:find("{", 1, true) then
        return text
    end
    text = text:gsub("{n}", string.format("%d", n))
    text = text:gsub("{object}", string.format("%06d", n % objects))
    return text
end

local function update()
    local text = bodies[next_body]
    bodies[next_body] = nil
    next_body = next_body + 1
    local name = text:match('"name":"(app%-%d+)"')
    text = text:gsub('("displayName":")[^"]*', string.format("%%1Ingress NGINX %d", n), 1)
    return wrk.format(method, path:gsub("app%-{object}", name), nil, text)
end

function request()
    n = n + 1
    if limit > 0 and n > last and elapsed_us == nil then
        -- The request of this call is still sent, but no response is read any more.
        elapsed_us = read_clock_us() - started_us
        wrk.thread:stop()
    end
    if bodies_file ~= "" then
        return update()
    end
    return wrk.format(method, fill_placeholders(path), nil, fill_placeholders(body))
end

-- Only where they are needed: wrk is slower with these functions.
if bodies_file ~= "" then
    function response(status, headers, text)
        add_body(text)
    end
end
if pause_ms > 0 then
    function delay()
        return pause_ms
    end
end

-- wrk waits for the end of its time even if all threads have stopped.
local function compute_duration(duration)
    local longest = 0
    for _, thread in ipairs(threads) do
        longest = math.max(longest, thread:get("elapsed_us") or duration)
    end
    return longest
end

function done(summary, latency)
    local errors = summary.errors
    io.write(string.format(
        '{"requests":%d,"duration_us":%d,"bytes":%d,"p50_us":%d,"p99_us":%d,"max_us":%d,"refused":%d,"broken":%d,"late":%d}\n',
        summary.requests, compute_duration(summary.duration), summary.bytes,
        latency:percentile(50), latency:percentile(99), latency.max,
        errors.status, errors.connect + errors.read + errors.write, errors.timeout
    ))
end
