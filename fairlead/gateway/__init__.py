"""Requests that go through to connected clusters, spaces and virtual clusters.

    Gateways       which cluster is meant, and may a space's gateway be asked this?     gateways.py, confinement.py
      forward      the request in its new clothes, the answer in ours                   forward.py
        headers    what of a request goes along, and as whom                            headers.py
        answers    what of an answer comes back, and errors in words of ours            answers.py
        stream     bodies, logs and watches, piece by piece, for as long as they may    stream.py
        tunnel     WebSockets: exec, attach, port-forward                               tunnel.py
        spdy       the same by those who do not open WebSockets, and why they cannot    spdy.py

Whether somebody may enter at all was decided before (`authz/`), and `upstream/` has the connections. `forward` needs
neither of our objects nor a registry, so whoever stands beside a cluster can use it, too.
"""
