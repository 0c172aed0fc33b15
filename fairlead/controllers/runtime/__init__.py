"""What all controllers run on.

- `loop.py`: the reconcile loop, and the protocol that controllers implement
- `multi_watch.py`: one watch of several resources of the store
- `leader.py`: leader election by a Lease, for several replicas on one store
"""
