"""Basic types and helpers that all other packages use. Imports nothing else from Fairlead.

call.py, errors.py     the request and response types, and the API errors
refusals.py            notes in the audit event what refused a request
user.py, scope.py      the authenticated user, and the scope of an access key
objects.py, clock.py   JSON objects, timestamps
json/, yaml.py         decoding and encoding of bodies; body_errors.py: their errors and limits
protobuf_wire.py       the wire format of protobuf
workspaces.py          what the server, runners and the command line know alike about workspaces
deployed_runners.py    the finalizer and names of runners that the server deploys into a cluster
cluster_exports.py     the objects by which GitOps tools reach clusters through their gateways
truncation.py          names that are too long for where they go
addresses.py           protected and private addresses
pinned_https.py        HTTPS to an address that was checked
validators.py          checks of addresses, URLs and names; sizes as people write them
suggestions.py         "did you mean"
backoff.py             delays after failures, and jitter
bounded_cache.py       a dict of bounded size
concurrency.py         thread pools with fair queueing, slicing of work on the event loop, turns of large responses
thread_activity.py     what the threads beside the event loop do
waiting.py             how tasks are started and ended, signals between them, waits for a revision
framed_socket.py       frames of bytes between processes of one server, over a Unix socket
files.py               private, atomically written files
machine/               what a process asks of the machine that it runs on
crypto/                certificates, encryption at rest, token signing
log.py                 structured logging
"""
