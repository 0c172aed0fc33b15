"""Basic types and helpers that all other packages use. Imports nothing else from Fairlead.

call.py, errors.py     the request and response types, and the API errors
user.py, scope.py      the authenticated user, and the scope of an access key
objects.py, clock.py   JSON objects, timestamps
json.py, yaml/         decoding and encoding of bodies; body_errors.py: their errors and limits
protobuf_wire.py       the wire format of protobuf
workspace_options.py   options of workspace templates that give power or choose a place
addresses.py           protected and private addresses
validators.py          checks of addresses, URLs and names
backoff.py             delays after failures, and jitter
bounded_cache.py       a dict of bounded size
concurrency.py         thread pools with fair queueing, slicing of work on the event loop
waiting.py             signals between tasks, waits for a revision
framed_socket.py       frames of bytes between processes of one server, over a Unix socket
files.py               private, atomically written files; folder_security.py: ownership and permissions
crypto/                certificates, encryption at rest, token signing
log.py                 structured logging
"""
