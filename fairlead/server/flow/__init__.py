"""Flow control, after API Priority and Fairness: which request runs next when the server is saturated.

fair_queue.py  the priority levels: their shares and seats, and start-time fair queueing between the flows of one
classify.py    the priority level and flow of a request, and its estimated cost
control.py     dispatches, queues and rejects requests
attempts.py    throttles attempts to guess a password or a code
streams.py     limits on open watches and other streams, and slots for the work of streams
stage.py       the stage of the pipeline, and its metrics

A flow is all requests of one user, whatever access keys, sessions and impersonated identities they use. While nothing
is queued, flow control costs a request a few comparisons. Once the time budget of an iteration of the event loop is
used up, requests are queued by flow, and each iteration first serves the flows that have received the least.
"""
