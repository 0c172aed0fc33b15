"""A fleet of clusters on one machine: what each costs while nothing happens, and what happens when they are lost.

`python -m bench.fleet --clusters 1000 --dialled 2000`.

agents.py   many agents that dial out, in one process, with one bare API server behind them
run.py      the rounds: idle, through a tunnel beside dialled, lost agents, a server that is killed
__main__.py the table
"""
