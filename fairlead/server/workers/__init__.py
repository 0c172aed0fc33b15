"""What must hold across the worker processes of one server.

coordinator.py  in one process: counts streams, login attempts and reports of all workers, collects their metrics
client.py       in each worker: the same limits as in a server with one process, by calls to the coordinator
channel.py      calls in both directions over one connection

A worker has one connection to the coordinator. When it ends, everything that the worker held is released. A server with
one process has no coordinator. No ordinary request calls it: only the start of a stream, a password login, a report of
an agent, and `/metrics` do.
"""
