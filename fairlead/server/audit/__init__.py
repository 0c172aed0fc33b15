"""The audit log: who asked for what, when, from where, and what came of it, as Kubernetes' `audit.k8s.io/v1` events.

`app` puts it together. A request passes two stages of `stage.py`: `accountable` refuses what must not happen
unrecorded, `recorded` sees every answer. Between them and the file:

    policy.py       which requests are recorded, and how much of them; policy_file.py reads Kubernetes' policy files
    credentials.py  which requests are recorded whatever the policy says
    recorder.py     which events there are of a request, and when
    event.py        an event without its bodies, made on the event loop; shown.py keeps credentials out of its texts
    draft.py        an event that still needs a look at bodies, finished in the writer's thread
    bodies.py       bytes to values, or why not; redaction.py takes out what nobody may read in a log
    trail.py        the bounded queue and the thread that writes
    files.py        the file and its rotation; backups.py compresses and removes what was rotated away
"""
