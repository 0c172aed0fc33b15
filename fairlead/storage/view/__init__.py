"""The watch cache: all objects in memory, indexed, with recent history and the fan-out to watchers.

view.py            View: follows the store and serves reads and watches
collection.py      the objects of one resource, with label and field indexes
sorted_chunks.py   objects in key order, in chunks whose encoded bytes are cached
entry.py           one object, with the fields that selectors need
fan_out.py         the bounded queues of watchers, and waking them in batches
"""
