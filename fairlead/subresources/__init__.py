"""Handlers of product subresources and of kinds that are answered, not stored. `server/api/actions.py` calls them.

access_reviews.py    SubjectAccessReview and its variants, SelfSubjectRulesReview
whoami.py            Self, SelfSubjectReview and TokenReview
profile.py           users/<name>/profile
access_keys.py       users|teams/<name>/accesskeys, ownedaccesskeys/<name>/rotate
service_accounts.py  serviceaccounts/<name>/token
direct_tokens.py     directclusterendpointtokens, tokenkeyrotations
cluster_agents.py    clusters/<name>/accesskey, agentconfig, agentreport
runners.py           runners/<name>/accesskey, config, rotatekey
projects.py          projects/<name>/members, clusters, runners, templates
migration.py         projects/<name>/migratevirtualclusterinstance
"""
