"""Noisy neighbours: the latencies of a quiet user while another user attacks the server.

run.py       the users, the rounds, and the rows of the table
quiet.py     the quiet user, who reads one object, creates others, and measures latencies
attacker.py  a process of the attacker: it ends by itself, and has a lower priority than the server
attacks.py   ten attacks, each in a closed loop at full speed
"""
