"""Handlers of product subresources and of kinds that are answered, not stored. `server/api/actions.py` calls them.

access_reviews.py    SubjectAccessReview and its variants, SelfSubjectRulesReview
whoami.py            Self, SelfSubjectReview and TokenReview
resource_access.py   ResourceAccessReview; resource_counts.py: ResourceCount
audit_events.py      AuditEvent
credentials.py       access keys, service account tokens, direct tokens, OpenID Connect discovery
cluster_agents.py    clusters/<name>/accesskey, agentconfig, agentreport
cluster_health.py    clusters/<name>/health
runners.py           runners/<name>/accesskey, config, rotatekey
projects.py          projects/<name>/members, clusters, runners, templates
principal_info.py    users and teams in the responses of whoami.py and projects.py
migration.py         projects/<name>/migratevirtualclusterinstance
workspaces/          workspaces, and the connections of their runners
"""
