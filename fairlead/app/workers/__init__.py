"""Several worker processes that serve one port, for `fairlead serve` with more than one worker.

    supervisor.py     the parent process: starts, watches, replaces and stops the others, which inherit its memory
    slots.py          one place for a process: whether it runs, when it is started again
    child_process.py  forks a child, and talks to it through its control socket
    owner.py          what these run: the owner has opened an embedded store and serves it to the workers, which serve
                      requests: `fairlead.app.run` with a WorkerContext
    context.py        what a worker is given, and its connection to the process that coordinates all of them

The supervisor forks, so the others share its memory pages with all imported modules. It must therefore never have a
second thread: no event loop with an executor, no HTTP server, no database.

    supervisor ── owner       one; with PostgreSQL and etcd, workers open the store themselves
               ├─ worker 1    announced when it is ready; it has created what a new installation needs
               ├─ worker 2    started after that
               ┆
"""
