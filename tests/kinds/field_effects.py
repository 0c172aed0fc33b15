"""Where the product reads each field that clients may set.

By reader, a file of the product: the fields that it acts on or shows, as patterns of `Kind.path`, where `*` stands for
any text, and `[]` and `{}` for the entries of lists and maps. A field may have several readers. One that nothing reads
is declared with `without_effect` instead. `test_field_effects.py` checks that each field has one or the other, and that
the reader of a field contains its name.
"""

DESCRIPTIVE = """
    *.spec.displayName *.spec.description *.spec.access[].name OwnedAccessKey.spec.identity.username
    OwnedAccessKey.spec.identity.preferredUsername OwnedAccessKey.spec.identity.email
    OwnedAccessKey.spec.identity.emailVerified
"""
"""What describes an object to its readers, or records what a login was made of: it is shown, and that is its effect."""

READERS = {
    # Permissions, and what every kind has
    "fairlead/authz/ownership.py": """
        *.spec.owner.user *.spec.owner.team *.spec.access[].users *.spec.access[].teams *.spec.access[].verbs
        *.spec.access[].subresources
    """,
    # Users, teams and their keys
    "fairlead/kinds/access/users.py": "User.spec.email User.spec.username Team.spec.username",
    "fairlead/authn/principals.py": """
        User.spec.groups User.spec.ssoGroups Team.spec.users Team.spec.groups Team.spec.disabled User.spec.disabled
    """,
    "fairlead/signin/sso/users.py": "User.spec.subject User.spec.issuer",
    "fairlead/authn/sign_on_policy.py": "User.spec.ssoIdentity.*",
    "fairlead/console/static/pages/access/user.js": "User.spec.icon",
    "fairlead/signin/passwords.py": "User.spec.passwordRef.*",
    "fairlead/authn/token_issuer.py": "User.spec.tokenGeneration DirectClusterEndpointToken.spec.ttl",
    "fairlead/authn/access_keys.py": """
        OwnedAccessKey.spec.user OwnedAccessKey.spec.team OwnedAccessKey.spec.subject OwnedAccessKey.spec.groups
        OwnedAccessKey.spec.disabled OwnedAccessKey.spec.parent
    """,
    "fairlead/admission/access_keys.py": "OwnedAccessKey.spec.key OwnedAccessKey.spec.type",
    "fairlead/domain/key_lifetime.py": "OwnedAccessKey.spec.ttl OwnedAccessKey.spec.ttlAfterLastActivity",
    "fairlead/signin/sso/refresh.py": """
        OwnedAccessKey.spec.identity.userId OwnedAccessKey.spec.identity.connector
        OwnedAccessKey.spec.identity.connectorData OwnedAccessKey.spec.identity.identityRefresh
    """,
    "fairlead/signin/login_sessions.py": "OwnedAccessKey.spec.identity.extraClaims",
    "fairlead/kinds/access/access_key.py": "OwnedAccessKey.spec.oidcProvider.clientId",
    "fairlead/core/scope.py": """
        *.spec.scope.allowServiceCli *.spec.scope.projects[].project *.spec.scope.spaces[].* *.spec.scope.rules[].*
        *.spec.scope.virtualClusters[].* *.spec.scope.clusters[].cluster *.spec.scope.roles[].role
    """,
    # Projects and their secrets
    "fairlead/authz/project_members.py": """
        Project.spec.members[].kind Project.spec.members[].name Project.spec.members[].clusterRole
    """,
    "fairlead/admission/allow_lists.py": """
        Project.spec.allowedClusters[].name Project.spec.allowedRunners[].name Project.spec.allowedTemplates[].*
    """,
    "fairlead/admission/instances.py": "Project.spec.requireTemplate.disabled",
    "fairlead/admission/quotas.py": "Project.spec.quotas.project Project.spec.quotas.user",
    "fairlead/controllers/instances/spaces.py": "Project.spec.namespacePattern.space Space*.template.objects",
    "fairlead/controllers/instances/virtual_clusters.py": """
        Project.spec.namespacePattern.virtualCluster VirtualCluster*.template.objects
        VirtualCluster*.spaceTemplate.objects
    """,
    # `test_views.py` checks that each property of a view is used.
    "fairlead/domain/typed_objects.py": """
        SpaceInstance.spec.clusterRef.* Runner.spec.clusterRef.cluster Runner.spec.clusterRef.namespace
        VirtualClusterInstance.spec.clusterRef.*
        VirtualClusterInstance.spec.networkPeer VirtualClusterInstance.spec.external *.helmRelease.values
        Cluster.spec.unusable App.spec.wait App.spec.timeout AppInstance.spec.releaseName AppInstance.spec.target.*
    """,
    "fairlead/subresources/workspaces/credentials.py": """
        ProjectSecret.spec.data SharedSecret.spec.data DevPodWorkspace*.valueFrom.*
    """,
    # Clusters and runners
    "fairlead/upstream/clusters.py": """
        Cluster.spec.config.* VirtualClusterInstance.spec.config.* Cluster.spec.networkPeer
    """,
    "fairlead/controllers/clusters/local_cluster.py": "Cluster.spec.local",
    "fairlead/kinds/clusters/runner.py": "Runner.spec.unusable",
    "fairlead/controllers/workspaces/runner_deployments.py": """
        Runner.spec.clusterRef.podTemplate.spec.image
    """,
    "fairlead/controllers/workspaces/runner_manifests.py": """
        Runner.spec.clusterRef.persistentVolumeClaimTemplate.* Runner.spec.clusterRef.podTemplate.*
    """,
    "fairlead/controllers/workspaces/scheduling.py": """
        Runner.spec.endpoint DevPodWorkspaceInstance.spec.runnerRef.runner
    """,
    "fairlead/features/dynamic_config.py": "Config.spec.raw",
    # Templates, their parameters and versions
    "fairlead/domain/parameters.py": """
        *.parameters[].variable *.parameters[].type *.parameters[].options *.parameters[].min *.parameters[].max
        *.parameters[].defaultValue *.parameters[].required *.parameters[].validation *.parameters[].invalidation
        *Instance.spec.parameterSecrets
    """,
    "fairlead/console/static/widgets/form/parameters.js": """
        *.parameters[].label *.parameters[].description *.parameters[].placeholder *.parameters[].section
    """,
    "fairlead/domain/template_resolution.py": """
        *Instance.spec.parameters *.spec.templateRef.name *.spec.templateRef.version *Template.spec.versions[].version
    """,
    "fairlead/controllers/instances/access_point.py": "*.template.accessPoint.ingress.enabled",
    "fairlead/kinds/instances/templates.py": "*.template.forwardToken",
    "fairlead/controllers/instances/templates.py": "*.spec.templateRef.syncOnce",
    "fairlead/controllers/instances/remote_namespace.py": "*.template.metadata.* *.template.spaceTemplate.metadata.*",
    "fairlead/controllers/instances/role_bindings.py": "*.template.access.* *.spec.extraAccessRules[].*",
    "fairlead/controllers/apps/template_releases.py": """
        *.charts[].releaseName *.charts[].releaseNamespace *.charts[].values *.charts[].wait *.charts[].timeout
        *.apps[].*
    """,
    "fairlead/domain/chart_secrets.py": """
        *.charts[].usernameRef.* *.charts[].passwordRef.* App.spec.*.chart.usernameRef.* App.spec.*.chart.passwordRef.*
    """,
    "fairlead/controllers/helm/chart.py": """
        *.charts[].name *.charts[].repoURL *.charts[].version *.charts[].username *.charts[].password
        *.helmRelease.chart.* App.spec.*.chart.name App.spec.*.chart.repoURL App.spec.*.chart.version
        App.spec.*.chart.username App.spec.*.chart.password
    """,
    # Workspaces
    "fairlead/runner/desired.py": """
        DevPodWorkspace*.template.provider.name DevPodWorkspace*.template.provider.options{}.value
        DevPodWorkspace*.template.workspaceEnv{}.value DevPodWorkspace*.template.gitCloneStrategy
    """,
    "fairlead/subresources/workspaces/git_secrets.py": """
        DevPodWorkspace*.template.useProjectGitCredentials
        DevPodWorkspace*.template.credentialForwarding.git.disabled
    """,
    "fairlead/domain/environments.py": """
        DevPodWorkspaceInstance.spec.environmentRef.name
        DevPodEnvironmentTemplate.spec.template.inline DevPodEnvironmentTemplate.spec.versions[].template.inline
        DevPodWorkspaceInstance.spec.environmentRef.version
    """,
    "fairlead/domain/presets.py": """
        DevPodWorkspaceInstance.spec.presetRef.name DevPodWorkspaceInstance.spec.presetRef.version
        DevPodWorkspacePreset.spec.source.* DevPodWorkspacePreset.spec.versions[].source.*
        DevPodWorkspacePreset.spec.versions[].version DevPodWorkspacePreset.spec.parameters
        DevPodWorkspacePreset.spec.versions[].parameters
    """,
    "fairlead/admission/presets.py": """
        DevPodWorkspacePreset.*Ref.name DevPodWorkspacePreset.*Ref.version Project.spec.requirePreset.disabled
    """,
    "fairlead/domain/sleep_mode.py": "*.template.instanceTemplate.metadata.annotations",
    "fairlead/subresources/workspaces/waking.py": "DevPodWorkspace*.preventWakeUpOnConnection",
    # Apps
    "fairlead/domain/app_resolution.py": """
        App.spec.config.manifests App.spec.config.values App.spec.config.parameters App.spec.versions[].manifests
        App.spec.versions[].values App.spec.versions[].parameters App.spec.versions[].version App.spec.manifests
        App.spec.helm.* AppInstance.spec.appRef.name AppInstance.spec.appRef.version AppInstance.spec.parameters
    """,
    "fairlead/controllers/apps/script_jobs.py": "App.spec.config.bash.* App.spec.versions[].bash.*",
    "fairlead/domain/release_annotations.py": "App.spec.config.annotations App.spec.versions[].annotations",
    "fairlead/admission/apps.py": "App.spec.clusters App.spec.defaultNamespace",
    "fairlead/console/static/pages/apps/app.js": "App.spec.icon App.spec.readme App.spec.recommendedApp",
}
