"""Controllers of workspaces and runners.

- `workspaces.py`: binds workspaces to runners; `scheduling.py` chooses the runner and computes the status
- `runners.py`: conditions of runners
"""
