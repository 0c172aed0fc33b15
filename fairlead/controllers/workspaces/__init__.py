"""Controllers of workspaces and runners.

- `workspaces.py`: binds workspaces to runners; `scheduling.py` chooses the runner and computes the status,
  `suitability.py` says what a runner lacks
- `runners.py`: conditions of runners
- `readiness.py`: whether a workspace is ready
- `runner_deployments.py`: deploys runners into clusters: `runner_manifests.py` has their objects, `runner_rollout.py`
  whether they run
- `sleep.py`: puts workspaces to sleep that are not used, and deletes them; `sleep_decisions.py` decides when
- `moves.py`: has runners remove what they have of workspaces that were moved away
- `prebuilds.py`: repeats prebuilds by their schedules
"""
