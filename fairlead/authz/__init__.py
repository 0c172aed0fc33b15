"""Authorization: an ordered chain of authorizers. The first one with an opinion decides; the default is deny.

authorizer        the authorizer of the server: runs the chain, filters lists, explains decisions
scope/            restricts access keys to their scope; runs first
rbac              Kubernetes RBAC
default_roles     creates and updates the default ClusterRoles; role_updates preserves what users have changed
project_members   roles of project members
ownership         owners and access entries of objects; name_index makes their lookups fast
port_access       who may open a port of a workspace in a browser
self_access       users on their own User, teams and access keys
component_access  runners and cluster agents
secret_access     which secrets a workspace gets
subject_access_reviews  authorization by another API server, for requests that it forwards
"""
