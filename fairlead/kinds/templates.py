"""The definitions inside templates: of workspaces, spaces and virtual clusters.

Instances carry them too, written out in `spec.template` or rendered in their status, so that they live beside the kinds
and not in one of them.
"""

from fairlead.kinds.shared import CHART, PROJECT_SECRET_REF, TEMPLATE_REF, TEXT_MAP
from fairlead.registry import limits
from fairlead.registry.schema import Schema, array, boolean, described, enum, mapping, obj, string

_METADATA = obj(
    "Labels and annotations for what is made.",
    labels=described(TEXT_MAP, "Labels to set."),
    annotations=described(TEXT_MAP, "Annotations to set."),
)

_INSTANCE_TEMPLATE = obj("What the instance object itself gets.", metadata=_METADATA)

_INSTANCE_ACCESS = obj(
    "Which rights people have inside the instance.",
    defaultClusterRole=string("Cluster role of those that no rule is about."),
    rules=array(
        obj(
            users=array(string(), "Users that the rule is about. `*` means every user.", most=limits.MEMBERS),
            teams=array(string(), "Teams that the rule is about.", most=limits.MEMBERS),
            clusterRole=string("Cluster role that they get."),
        ),
        "Rules by user and team. All that match add up; the default holds when none does.",
        most=limits.ACCESS_ENTRIES,
    ),
)

_APPS = array(
    obj(
        name=string("Name of the App."),
        namespace=string("Namespace to deploy it to. Empty means the App's default namespace."),
        releaseName=string("Name of the release. Empty means the name of the App."),
        version=string("Version of the App. Empty means the App as it stands."),
        parameters=string("Values for the App's parameters, as YAML text.", longest=limits.DOCUMENT),
    ),
    "Apps to deploy into it.",
    most=limits.DEPLOYMENTS,
)

_CHARTS = array(
    obj(
        **CHART,
        releaseName=string("Name of the release. Empty means the name of the chart."),
        releaseNamespace=string("Namespace to deploy to."),
        values=string("Values for the chart, as YAML text.", longest=limits.DOCUMENT),
        wait=boolean("Wait until everything that was deployed is ready. Defaults to false."),
        timeout=string("How long to wait at most, such as `5m0s`."),
    ),
    "Charts to deploy into it.",
    most=limits.DEPLOYMENTS,
)

_OBJECTS = string("Kubernetes objects to create in it, as YAML text with `---` between them.", longest=limits.DOCUMENT)

SPACE_TEMPLATE = obj(
    "A space: a namespace in a connected cluster.",
    metadata=_METADATA,
    instanceTemplate=_INSTANCE_TEMPLATE,
    objects=_OBJECTS,
    charts=_CHARTS,
    apps=_APPS,
    access=_INSTANCE_ACCESS,
)

VIRTUAL_CLUSTER_TEMPLATE = obj(
    "A virtual cluster and the space that it runs in.",
    metadata=_METADATA,
    instanceTemplate=_INSTANCE_TEMPLATE,
    objects=_OBJECTS,
    charts=_CHARTS,
    apps=_APPS,
    access=_INSTANCE_ACCESS,
    helmRelease=obj(
        "How the virtual cluster itself is deployed.",
        chart=obj(
            "Chart of the virtual cluster.",
            name=CHART["name"],
            repo=CHART["repoURL"],
            version=CHART["version"],
            username=CHART["username"],
            password=string("Password for the repository.", format="password", longest=limits.CREDENTIAL),
        ),
        values=string("Values for the chart, as YAML text.", longest=limits.DOCUMENT),
    ),
    accessPoint=obj(
        "How the virtual cluster is reached from outside.",
        ingress=obj("Through an ingress.", enabled=boolean("Make an ingress for it. Defaults to false.")),
    ),
    forwardToken=boolean("Hand the caller's own token on to the virtual cluster. Defaults to false."),
    spaceTemplate=obj(
        "The space that the virtual cluster runs in.",
        metadata=_METADATA,
        objects=_OBJECTS,
        charts=_CHARTS,
        apps=_APPS,
    ),
)

_VALUES = mapping(
    obj(
        value=string("The value itself.", longest=limits.ENVIRONMENT),
        valueFrom=obj(
            "Where to read the value from instead.",
            projectSecretRef=PROJECT_SECRET_REF,
            sharedSecretRef=obj(
                "A key of a shared secret.",
                namespace=string("Namespace of the shared secret."),
                name=string("Name of the shared secret."),
                key=string("Key within the secret."),
            ),
        ),
    )
)


def _switch(what: str) -> Schema:
    return obj(f"Forwarding of {what} credentials.", disabled=boolean("Do not forward them. Defaults to false."))


WORKSPACE_TEMPLATE = obj(
    "How a workspace is made.",
    provider=obj(
        "What runs the workspace.",
        required=("name",),
        name=string("Name of the provider."),
        options=described(_VALUES, "Options of the provider by name."),
        env=described(_VALUES, "Environment of the provider's own commands."),
    ),
    spaceTemplate=described(SPACE_TEMPLATE, "Space to make for the workspace."),
    spaceTemplateRef=described(TEMPLATE_REF, "Space template to make a space for the workspace from."),
    virtualClusterTemplate=described(VIRTUAL_CLUSTER_TEMPLATE, "Virtual cluster to make for the workspace."),
    virtualClusterTemplateRef=described(TEMPLATE_REF, "Virtual cluster template to make one for the workspace from."),
    workspaceEnv=described(_VALUES, "Environment inside the workspace."),
    initEnv=described(_VALUES, "Environment while the workspace is being set up."),
    instanceTemplate=_INSTANCE_TEMPLATE,
    useProjectGitCredentials=boolean("Offer the project's Git credentials in the workspace. Defaults to false."),
    useProjectSSHCredentials=boolean("Offer the project's SSH keys in the workspace. Defaults to false."),
    gitCloneStrategy=enum(
        "How much of a Git repository is fetched. Empty means all of it.", "", "blobless", "treeless", "shallow"
    ),
    credentialForwarding=obj(
        "Which of the user's own credentials the workspace may use.",
        docker=_switch("container registry"),
        git=_switch("Git"),
    ),
    preventWakeUpOnConnection=boolean("Stay asleep when somebody connects over SSH. Defaults to false."),
)
