"""The direct endpoint: what `fairlead agent` serves beside a cluster, with no server of ours in between.

    Direct       who asks, and for what? Then it is handed on                  endpoint.py, entrances.py
      holders    a token, and whom it stands for as things are now             holders.py
      knowledge  what the agent has learnt from its server, kept on disk       knowledge.py, state.py
      home       asking the server, and telling it what has happened           home.py
      reports    audit events and activity on their way there                  reports.py
      nearby     the cluster that it stands beside, and the credential for it  nearby.py

Everything is decided from what is known here, so that it goes on while the server is down. `app/agent.py` puts it
together; handing on is `gateway/proxy.py`'s, as for the server's own gateways.
"""
