"""The noisy neighbour: what a quiet user notices while another one does his worst.

run.py       who there is, the rounds, and the rows that come of them
quiet.py     the quiet user, who reads one object and creates others, and looks at the clock
attacker.py  a process of the other user: it ends by itself, and is nicer to the processor than the server
attacks.py   what he does, ten ways of it, each in a closed loop at full speed
"""
