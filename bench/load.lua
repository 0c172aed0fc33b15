-- The requests of wrk and its report. wrk.py passes the options in the environment, where no other user can read the key.
-- In the path and the body, {n} is a number that no other request has, and {object} that of one of the seeded objects.

local method = os.getenv("BENCH_METHOD")
local path = os.getenv("BENCH_PATH")
local body = os.getenv("BENCH_BODY")
local objects = tonumber(os.getenv("BENCH_OBJECTS"))
local n = tonumber(os.getenv("BENCH_FIRST"))

wrk.headers["authorization"] = os.getenv("BENCH_AUTHORIZATION")
if body == "" then
    body = nil
else
    wrk.headers["content-type"] = os.getenv("BENCH_CONTENT_TYPE")
end

-- Each thread of wrk runs this script on its own, so each gets the start of its own numbers.
local threads = 0
function setup(thread)
    thread:set("thread_number", threads)
    threads = threads + 1
end

function init()
    n = n + thread_number * tonumber(os.getenv("BENCH_STRIDE"))
end

local function fill_placeholders(text)
    if text == nil or not text:find("{", 1, true) then
        return text
    end
    text = text:gsub("{n}", string.format("%d", n))
    text = text:gsub("{object}", string.format("%06d", n % objects))
    return text
end

function request()
    n = n + 1
    return wrk.format(method, fill_placeholders(path), nil, fill_placeholders(body))
end

function done(summary, latency)
    local errors = summary.errors
    io.write(string.format(
        '{"requests":%d,"duration_us":%d,"bytes":%d,"p99_us":%d,"refused":%d,"broken":%d,"late":%d}\n',
        summary.requests, summary.duration, summary.bytes, latency:percentile(99),
        errors.status, errors.connect + errors.read + errors.write, errors.timeout
    ))
end
