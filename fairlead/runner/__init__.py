"""The runner: a process that runs workspaces on its machine for a Fairlead server.

Its server says what should run; the runner compares that with what its engines observe, and starts tasks until both
agree. It never stops or deletes anything because the server cannot be reached.

process.py          builds a runner from its settings, and runs it with its connection to the server
settings.py         settings of the process
machine_settings.py the configuration file: what the machine gives to workspaces
api.py              requests to the server, and the watch of the runner's workspaces
answers.py          checks the types of what the server sends
heartbeat.py        the Lease of the runner; fences processes that another one has replaced
report.py           what the runner reports of itself: its phase, its engines, and labels of its machine
conditions.py       what is reported of the runner: free space, and workspaces that the server does not have
actions.py          what the server requests over that connection: up, stop, delete, status, log, tasks, exec
move_losses.py      what of a workspace is lost when it moves to another runner
sessions.py         connects a stream with a process or port inside a workspace
workspaces.py       all workspaces of the runner; requests, events and resync end here
reconcile.py        one workspace: compares what is wanted with what is, runs tasks, and reports
decisions.py        which task is due, and whether a workspace is asked to sleep (pure)
desired.py          from the object of the API to what an engine is called with (pure)
template_policy.py  what this runner honours of a template (pure)
status.py           from the state of a workspace to the status that is reported (pure)
work.py             the task under way of a workspace, from its start to its end; calls the engine
tasks.py            a task under way, as engines see it: named steps with deadlines, and messages in its log
task_log.py         the logs of tasks: bounded, read by offset, followed
journal.py          what survives the process: intents and tasks, written before each act
services.py         what the workspaces of a runner share; how many of them come up at a time
credentials.py      the secrets of a workspace, in memory only
activity.py         whether workspaces are in use; activity_monitor.py measures and reports it
registry.py         finds engines by name
doctor.py           checks what the machine lacks
web_ide.py          an editor for the browser, which starts when its port is opened
ssh/                SSH to workspaces
git/                credentials for the git of sessions
engines/            what a workspace runs in: dev containers or Pods, behind one contract
"""
