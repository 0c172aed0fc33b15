"""Basic types and helpers that all other packages use. Imports nothing else from Fairlead.

call.py, errors.py     the request and response types, what refused a request, and the API errors
user.py, scope.py      the authenticated user, and the scope of an access key
objects.py, clock.py   JSON objects, timestamps
json.py, yaml.py       decoding and encoding of bodies; body_errors.py: their errors and limits
json_slices.py         examines and decodes large JSON texts in slices
protobuf_wire.py       the wire format of protobuf
workspaces.py          what the server, runners and the command line know alike about workspaces and runners
addresses.py           protected and private addresses
pinned_https.py        HTTPS to an address that was checked
validators.py          checks of addresses, URLs and names; sizes as people write them
suggestions.py         "did you mean"
machine.py             what a check of the machine found, whether it has Helm, and its service manager
backoff.py             delays after failures, and jitter
bounded_cache.py       a dict of bounded size
concurrency.py         thread pools with fair queueing, slicing of work on the event loop, what other threads do
waiting.py             signals between tasks, waits for a revision
framed_socket.py       frames of bytes between processes of one server, over a Unix socket
files.py               private, atomically written files; folder_security.py: ownership and permissions
crypto/                certificates, encryption at rest, token signing
log.py                 structured logging
"""
