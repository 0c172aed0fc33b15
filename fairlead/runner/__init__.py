"""The runner: a process that runs workspaces on its machine for a Fairlead server.

Its server says what should run; the runner compares that with what its engines observe, and starts tasks until both
agree. It never stops or deletes anything because the server cannot be reached.

process.py          builds a runner from its settings, and runs it
settings.py         settings of the process
api.py              requests to the server, and the watch of the runner's workspaces
answers.py          checks the types of what the server sends
heartbeat.py        the Lease of the runner; fences processes that another one has replaced
link.py             keeps a connection to the server open, over which the server opens streams
actions.py          what the server requests over these streams: up, stop, delete, status, log, tasks, exec
sessions.py         connects a stream with a process or port inside a workspace
workspaces.py       all workspaces of the runner; requests, events and resync end here
reconcile.py        one workspace: compares what is wanted with what is, and runs tasks
work.py             the task under way of a workspace, from its start to its end
reporting.py        writes the status of a workspace to the server, and Events
usage.py            what a workspace uses, as it is reported (pure)
execution.py        calls the engine of a workspace for a task
services.py         what the workspaces of a runner share
credentials.py      the secrets of a workspace, in memory only
orphans.py          workspaces that the machine has and the server does not
decisions.py        which task is due (pure)
sleep_requests.py   how a workspace is asked to sleep (pure)
desired.py          from the object of the API to what an engine is called with (pure)
template_policy.py  what this runner honours of a template (pure)
tasks.py            a task under way: named steps with deadlines, and its log
queue.py            how many workspaces come up at a time
journal.py          what survives the process: intents and tasks, written before each act
task_log.py         the logs of tasks: bounded, read by offset, followed
log_lines.py        their format: messages as JSON lines, also of raw output
status.py           from the state of a workspace to the status that is reported (pure)
registry.py         finds engines by name
disk.py             the free space of the state folder: condition, and limit for new workspaces
doctor.py           checks what the machine lacks
activity/           whether workspaces are in use
ssh/                SSH to workspaces
engines/            what a workspace runs in: dev containers or Pods, behind one contract
"""
