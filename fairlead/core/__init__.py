"""Basic types and helpers that all other packages use. Imports nothing else from Fairlead.

call.py, errors.py     the request and response types, and the API errors
user.py, scope.py      the authenticated user, and the scope of an access key
objects.py, clock.py   JSON objects, timestamps
json.py, yaml/         decoding and encoding of bodies; body_errors.py: their errors and limits
json_outline.py        the size and depth of a JSON text; json_slices.py: decodes large ones in slices
jsonc.py               JSON with comments
protobuf_wire.py       the wire format of protobuf
workspace_options.py   options of workspace templates that give power or choose a place
workspace_source.py    the annotation with the source of a workspace; workspace_status.py: what it does, in one word
runner_names.py        names of a runner that the server deploys
addresses.py           protected and private addresses
pinned_https.py        HTTPS to an address that was checked; tls_peer.py: what a listener knows of a client
validators.py          checks of addresses, URLs and names
sizes.py               sizes as people write them; suggestions.py: "did you mean"
refusals.py            what refused a request, for the audit log
findings.py            what a check of a machine found; helm_program.py: finds Helm
backoff.py             delays after failures, and jitter
bounded_cache.py       a dict of bounded size
concurrency.py         thread pools with fair queueing, slicing of work on the event loop
loop_thread.py         a coroutine in a thread of its own; thread_activity.py: what other threads do
waiting.py             signals between tasks, waits for a revision
framed_socket.py       frames of bytes between processes of one server, over a Unix socket
files.py               private, atomically written files; folder_security.py: ownership and permissions
crypto/                certificates, encryption at rest, token signing
log.py                 structured logging
service_manager.py     tells systemd that the process is ready
"""
