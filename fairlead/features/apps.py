"""Apps, which administrators publish, and their instances in clusters, spaces and virtual clusters."""

from fairlead.admission import Phase
from fairlead.admission.apps import check_app_instances, require_app_use
from fairlead.admission.chart_secrets import record_chart_secret_writers
from fairlead.controllers.apps.app_instances import AppInstanceController
from fairlead.controllers.runtime.loop import Controller
from fairlead.features.contract import Feature, LeaderServices, Services
from fairlead.features.instances import instance_config


def build_apps_feature(services: Services) -> Feature:
    settings = services.settings
    authorize = services.auth.authorize
    group = services.api_group

    def build_controllers(leader: LeaderServices) -> tuple[Controller, ...]:
        controller = AppInstanceController(
            leader.registry,
            instance_config(services),
            leader.clusters,
            leader.helm,
            settings.chart_repositories,
        )
        return (controller,)

    return Feature(
        name="apps",
        admission={
            Phase.AUTHORIZE: (record_chart_secret_writers(authorize, group, settings.namespace_prefix),),
            Phase.CHECK: (
                check_app_instances(authorize, group),
                require_app_use(authorize, group),
            ),
        },
        controllers=build_controllers,
    )
