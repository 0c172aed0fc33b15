"""Handlers of product subresources and of kinds that are answered, not stored. `server/api/actions.py` calls them.

access_reviews.py    SubjectAccessReview and its variants, SelfSubjectRulesReview, ResourceAccessReview
whoami.py            Self, SelfSubjectReview and TokenReview; users and teams in responses
resource_counts.py   ResourceCount
audit_events.py      AuditEvent
credentials.py       access keys, service account tokens, direct tokens, OpenID Connect discovery
clusters.py          clusters/<name>/accesskey, agentconfig, agentreport, health
runners.py           runners/<name>/accesskey, config, rotatekey
projects.py          projects/<name>/members, clusters, runners, templates, usage
migration.py         projects/<name>/migratevirtualclusterinstance
migration_companions.py  what moves with a virtual cluster, and what prevents that
ports/               ports of workspaces in a browser, by host names of their own
agents/              the agents of clusters that dial out: joining, and their sessions
workspaces/          workspaces, and the connections of their runners
"""
