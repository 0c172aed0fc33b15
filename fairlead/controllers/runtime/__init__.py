"""What all controllers run on.

- `loop.py`: the reconcile loop, and the protocol that controllers implement
- `multi_watch.py`: one watch of several resources of the store
- `backoff.py`: exponential backoff for failed reconciles of instances
- `leader.py`: leader election by a Lease, for several replicas on one store
- `remote_informers.py`: watches of applied objects in remote clusters, which trigger reconciles
"""
