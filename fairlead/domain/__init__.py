"""Rules about product objects, without schemas: shared by admission, controllers, authentication and subresources.

key_lifetime.py key_delegation.py   when an access key expires, and which keys a requester may issue
parameters.py                       template parameters: definitions, supplied values, validation
password_parameters.py              keeps values of password parameters out of responses
template_resolution.py              from an instance and its template to the rendered template
secret_references.py                references to secrets in workspaces and templates, and who wrote them
chart_secrets.py                    references to secrets in the charts of Apps and templates
workspace_trust.py                  what a workspace template may decide
port_shares.py                      with whom ports of a workspace are shared
environments.py presets.py          environments of workspaces, and what a preset gives to one
sleep_mode.py sleep_decisions.py    annotations of sleep mode; how instances fall asleep and wake up
instance_sleep.py cron.py           the same for spaces and virtual clusters, also by schedules
app_resolution.py                   the same for instances of Apps
app_scripts.py                      scripts of Apps, and which are accepted
template_versions.py                versions, and patterns that select one
release_names.py                    names of Helm releases
release_annotations.py              annotations that an App sets on what it deploys
deploy_timeouts.py                  the timeout of a deployment
import_sources.py                   where an imported virtual cluster runs
open_source_chart.py                the chart of virtual clusters that the default template deploys, and its names
quotas.py                           what project quotas count
cluster_identity.py                 users of this server as remote clusters see them
probe_history.py                    the recent probes of a cluster, as a short text
probe_day.py                        the probes of a day by quarters of an hour, as a short text
user_settings.py                    settings in the profiles of users
typed_objects.py                    product objects with typed fields
"""
