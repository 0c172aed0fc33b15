"""The commands of `fairlead workspace` that reach the runner of a workspace, through the server.

- `sources`: the argument SOURCE, as the annotation that runners read
- `targets`: one workspace of a project; its tasks and their logs, which continue after a lost connection
- `running`: brings a workspace up, and stops it; shows the steps of a task while it runs
- `advice`: what to do if a workspace does not come up
- `explanation`: what `show` prints
- `commands`: the commands and their flags, except for those in `resources/workspace.py`
"""
