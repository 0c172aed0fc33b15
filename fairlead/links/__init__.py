"""The protocol between the server and a runner: many streams over one connection that the runner has opened.

frames.py      the frames, encoded and decoded
requests.py    what is asked for when a stream is opened
mux.py         the streams of one connection as a state machine: credit, order of sending, limits; no I/O
streams.py     the state of one stream in `mux.py`
limits.py      the limits of a connection, and the rate of frames without content
contract.py    what users of a link see: transports and streams
connection.py  runs a `Mux` on a transport, with asyncio
dialing.py     the WebSocket of a runner to the server, and its renewal
sockets.py     the same frames over a Unix socket, between the workers of one server
tls_sockets.py the same frames over TLS, between replicas

Both ends use this package; `docs/runner-protocol.md` describes the protocol for other implementations.
"""
