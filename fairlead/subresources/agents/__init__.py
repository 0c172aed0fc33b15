"""The agents of clusters that dial out, and the connections that they have opened to this server.

identities.py   the join token and the public keys of a cluster's agent, stored in a Secret of the server
endpoints.py    how an agent joins, opens a session, and replaces its key
hub.py          the sessions of this process, by cluster; those of other processes are reached through its peers

`fairlead/agent` is the other end, `fairlead/links` the protocol, and `fairlead/upstream/linked.py` sends the requests.
"""
