"""The cost of gateways, and the effect of dead or slow clusters on the others: `python -m bench.gateways`.

bare_clusters.py
            many API servers in one process, which `run.py` starts: they respond quickly, never, or are dead
fleet.py    connects them to a server
reference.py
            the same with a real API server as upstream, which runs already
run.py      the rounds: through the gateway and directly, and one healthy cluster among many
__main__.py the table
"""
