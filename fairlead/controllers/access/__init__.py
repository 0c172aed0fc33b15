"""Controllers for users, teams and their keys.

- `access_keys.py`: marks and deletes expired access keys and service account tokens
- `team_membership.py`: `status.teams` of users and `status.members` of teams
"""
