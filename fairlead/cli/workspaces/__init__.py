"""The commands of `fairlead workspace` that reach the runner of a workspace, through the server.

- `sources`: the argument SOURCE, as the annotation that runners read
- `targets`: one workspace of a project; its tasks and their logs, which continue after a lost connection
- `log_lines`: lines of a log: steps with their times, and messages
- `progress`: the steps of a task while it runs, live on a terminal
- `runners`: whether a runner responds, and what to do if not
- `advice`: what to do after a failed task
- `running`: brings a workspace up, and stops it
- `explanation`: what `show` prints
- `editors`: addresses that open a workspace in an editor
- `commands`: the commands and their flags, except for those in `resources/workspace.py`
"""
