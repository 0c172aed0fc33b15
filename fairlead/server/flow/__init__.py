"""Flow control: who is served next when more is asked for than can be done at once.

    fair_queue.py  start-time fair queueing between the flows of one priority level
    levels.py      the priority levels, their shares and what each has under way
    classify.py    which level and flow a request belongs to, and what it will probably cost
    control.py     what runs now, what waits, and what is refused
    pacing.py      turns for what streams work out after their answers have begun
    stage.py       the stage of the pipeline, and what it counts

A flow is everything that one user asks for, whatever keys, sessions and impersonated identities it comes with. While
nothing waits, a request pays a few comparisons. Once the time that one turn of the event loop may take is used up,
requests wait in their flows, and each turn serves those first who have had least.
"""
