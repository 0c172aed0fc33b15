"""Measures the server under load, each figure beside its ceiling and its aim: `make bench`, explained in
docs/performance.md.

__main__.py    what can be typed
run.py         the whole run: servers up, objects in, every row measured, servers down
scale.py       FULL and QUICK: how much of everything
rows.py        what is measured, and what it shall reach
aims.py        aims and verdicts
compare.py     a row's rounds: ours, the ceiling's and those of peers in turn
requests.py    a row of single requests, driven by wrk through wrk.py and load.lua
scoped.py      the same with few permissions
fanout.py      a row of watches, driven by our own readers in audience.py
growth.py      starts, memory, and rates with a million objects, which fill.py puts into the store
servers.py     the processes: fairlead, and the ceiling that ceiling.py is; and peers, which somebody else has started
connection.py  one connection for what wrk cannot do: seeding, writing at a pace, asking what came of it
together.py    several connections at once that fail as one
objects.py     the objects that servers are filled with; patches.py the content types of their patches
figures.py     readings, and the arithmetic on them
lines.py       the result line by line, each beside its aim, for programs; table.py and chart.py for people
failure.py     the one error: figures that would mean nothing
"""
