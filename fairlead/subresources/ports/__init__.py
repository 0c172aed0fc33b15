"""Ports of workspaces in a browser: each has a host name of its own, and so an origin of its own.

    hosts.py       the host names: `8080--desk--demo.workspaces.example.com`, and those with the mark of a workspace
    grants.py      tickets and port cookies: what the server has allowed a browser, signed with its own key
    access.py      the subresource `portaccess`, with which the console gets a ticket
    stages.py      the pipeline of requests to these host names: who sends them, from which page, and whether they may
    cookies.py     the cookies of the programs in a workspace, which no other workspace can set or read
    headers.py     request and response headers
    clients.py     the HTTP clients of ports, and their limits
    proxy.py       passes requests and WebSockets on, and the responses back

No other path of the server exists at these host names, and its login cookie is never sent to them.
"""
