"""Metrics for Prometheus, at `/metrics`.

    labels.py      the closed sets that labels come from: whatever anybody sends, there are never more series
    histogram.py   counts by size
    stage.py       the stage that sees every request and its answer: nothing but a few additions on plain objects
    requests.py    what the stage has counted, under the names that Kubernetes has for it
    platform.py    what Kubernetes has no names for: clusters, commits, the view
    process.py     memory, time and open files of this process
    exposition.py  families as text, in both of Prometheus' formats
    endpoint.py    who asks for `/metrics` gets all of that

`app` makes one of each and puts the stage outside of all others.
"""
