"""Measures the server under load, each figure beside its ceiling: `make bench`, explained in docs/benchmarks.md.

__main__.py    what can be typed
run.py         the whole run: both servers up, objects in, every row measured, both servers down
rows.py        ROWS: what is measured
compare.py     a row's rounds: ours and the ceiling's in turn
requests.py    a row of single requests, driven by wrk through wrk.py and load.lua
fanout.py      a row of watches, driven by our own readers in audience.py
servers.py     the two processes: fairlead, and the ceiling that ceiling.py is
connection.py  one connection for what wrk cannot do: seeding, writing at a pace, asking what came of it
together.py    several connections at once that fail as one
objects.py     the objects that the server is filled with
figures.py     readings, and the arithmetic on them
table.py       the result for people and for programs
failure.py     the one error: figures that would mean nothing
"""
