"""Whether workspaces are in use, as far as the runner can measure it without looking at content.

- `traffic.py`: bytes of sessions, counted while they pass through the runner
- `metering.py`: streams that are counted so
- `tracker.py`: the activity of one workspace, from samples of its engine, its sessions and its tasks
- `ledger.py`: the trackers of all workspaces, and whether a workspace may be put to sleep
- `monitor.py`: takes the samples, and reports to the server

The server decides what follows from it.
"""
