"""Engines: what a workspace runs in. `contract.py` is all that the runner knows of them.

contract.py         `Engine`, and the values that the runner and its engines exchange
"""
