"""Prometheus metrics, served at `/metrics`. `app` builds them and puts the stage outside all other stages.

stage.py       the stage that counts every request; resolves labels from closed sets, so series are bounded
families.py    metric families: requests, platform, process, flow control, event loop, single sign-on
exposition.py  histograms, and families as text in the Prometheus and OpenMetrics formats, by prometheus-client
installation.py  leader election, certificates, disk
aggregation.py merges the metrics of several worker processes
endpoint.py    the handler of `/metrics`
"""
