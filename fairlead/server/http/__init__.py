"""The HTTP edge: ASGI, request headers and bodies, responses, and limits on slow or stalled clients.

http_server.py          runs granian, the HTTP server, and replaces it when the certificate changes
certificate_watch.py    notices changed files of certificates
asgi.py                 granian's ASGI interface: requests become a `Call`, a `Reply` becomes a response or stream
listeners.py            ports and listening sockets
request.py              request headers and body; rejection of ambiguous requests (request smuggling)
origins.py              where a request comes from, also behind trusted proxies; removes headers that name users
tls_port.py             ports for client certificates: accept loop, TLS, limits, relay to the HTTP server
tls_context.py          their TLS contexts
proxy_protocol.py       the PROXY protocol of load balancers
response.py             response headers; the stages for gzip and custom headers
websocket.py            the server side of WebSockets; bounds the memory held for unfinished messages
unsent.py               bounds the memory held for unread responses and unfinished request bodies
memory_budgets.py       the accounting for that: per connection, per user and in total
slow_clients.py         detects stalled clients by TCP acknowledgements; lingering close for WebSockets
disconnect.py           closes client connections below the HTTP server
event_loop_watchdog.py  measures and logs how long the event loop is blocked
"""
