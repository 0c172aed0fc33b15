"""Measures the server under load, each figure with its ceiling and its aim: `make bench`, explained in
docs/performance.md.

__main__.py    the command line
run.py         the whole run: starts servers, creates objects, measures every row, stops the servers
scale.py       FULL and QUICK: the scale of a run
rows.py        the rows and their aims
aims.py        aims and verdicts
compare.py     a row's rounds: ours, the ceiling's and those of peers in turn
requests.py    a row of single requests, driven by wrk through wrk.py and load.lua
preparation.py what updates and deletions need before a round
quiet_gets.py  a row of a quiet client beside others
scoped.py      the same with few permissions
fanout.py      a row of watches, driven by our own readers in watch_group.py
workers.py     requests and memory of servers with several workers
growth.py      starts, memory, and rates with a million objects, which fill.py writes to the store
servers.py     the servers: fairlead, the ceiling of ceiling.py, and peers, which run already
connection.py  one connection for what wrk cannot do: creating objects, writing at a pace, checking results
task_groups.py concurrent coroutines with one failure
objects.py     the objects of the servers; patches.py the content types of their patches
figures.py     readings, and the arithmetic on them
processes.py   processor time and memory of the processes of a server
lines.py       the lines of the result with their aims; table.py and chart.py render them, markdown.py puts the tables
               into a document
console.py     the web console in a browser, a command of its own: `make bench-console`
workspaces.py  a runner with many dev containers, a command of its own: `make bench-workspaces`
failure.py     the error of a run without meaningful figures
"""
