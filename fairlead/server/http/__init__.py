"""The HTTP edge: ASGI, request headers and bodies, responses, and limits on slow or stalled clients.

http_server.py          runs granian, the HTTP server, and replaces it when the certificate changes
certificate_watch.py    notices changed files of certificates
asgi.py                 granian's ASGI interface: requests become a `Call`, a `Reply` becomes a response or stream
listeners.py            ports and listening sockets
request.py              request headers and body; rejection of ambiguous requests (request smuggling)
origins.py              where a request comes from; removes the headers in which front proxies name users
forwarded.py            the client behind trusted proxies (`X-Forwarded-For`)
tls_port.py             ports for client certificates: accept loop, TLS, relay to the HTTP server
tls_context.py          their TLS contexts
handshakes.py           bounds the handshakes that are under way on a port
proxy_protocol.py       the PROXY protocol of load balancers
response.py             response headers; the stages for gzip and custom headers
websocket.py            the server side of WebSockets
websocket_intake.py     bounds the memory held for unfinished messages on WebSockets
unsent.py               bounds the memory held for unread responses and unfinished request bodies
memory_budgets.py       the accounting for that: per connection, per user and in total
slow_clients.py         detects stalled clients by TCP acknowledgements; lingering close for WebSockets
disconnect.py           closes client connections below the HTTP server
event_loop_watchdog.py  measures and logs how long the event loop is blocked
"""
