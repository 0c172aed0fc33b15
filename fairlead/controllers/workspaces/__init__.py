"""Controllers of workspaces and runners.

- `workspaces.py`: binds workspaces to runners; `scheduling.py` chooses the runner and computes the status
- `runners.py`: conditions of runners
- `sleep.py`: puts workspaces to sleep that are not used, and deletes them; `sleep_decisions.py` decides when
"""
