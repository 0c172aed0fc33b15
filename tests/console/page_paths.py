"""The pages of the console with the objects of the demo, for tests and pictures of all of them."""

from tests.console.servers import PROJECT

WORKSPACE = f"devpodworkspaceinstances/service-p-{PROJECT}/cart"
QUESTION = f"access?verb=delete&resource=projects&group=management.service.sh&name={PROJECT}"
PATHS = (
    *("", "account", "about", "kinds", "settings", "audit", "audit?what=all", "access", QUESTION, "no/such/page"),
    *(
        "clusters",
        "clusters/~connect",
        "clusters/frankfurt",
        "clusters/singapore",
        "runners",
        "events",
        "map",
        "map?by=projects",
    ),
    *(f"projects{path}" for path in ("", "/~new", f"/{PROJECT}", "?q=nothing-has-this-name")),
    *(f"projects/{PROJECT}?view={view}" for view in ("members", "form", "yaml", "events")),
    *("spaceinstances", f"spaceinstances/~new?project={PROJECT}", "virtualclusterinstances/~new", "appinstances/~new"),
    *("apps", "apps/ingress", "spacetemplates/team-space", "projectsecrets/~new", "sharedsecrets"),
    *("devpodworkspaceinstances", "devpodworkspaceinstances/~new", WORKSPACE),
    *(f"{WORKSPACE}?view={view}" for view in ("log", "terminal", "ports", "yaml")),
    *("users", "users/admin", "teams", "ownedaccesskeys", "ownedaccesskeys/~new", "ownedaccesskeys/storefront-ci"),
)
