"""What gateways cost, and whether clusters that are dead or slow harm the others: `python -m bench.gateways`.

far.py      many API servers in one process, which `run.py` starts: they answer quickly, never, or are not there
fleet.py    connects them to a server
reference.py
            the same with a real API server as upstream, which somebody else runs
run.py      the rounds: through the gateway beside directly, and one healthy cluster among many
__main__.py the table
"""
