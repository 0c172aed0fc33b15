"""Paths: those of every resource, object, subresource and document, and what strangers make of them."""

from random import Random

from tests.harness.server_process import MANAGEMENT
from tests.security.api_resources import KEPT, Resource, World

NAMES = ("a", "a", "a", "b", "storm-1")
"""Of what attackers write to. Only the last two are ever really deleted."""
TRICKS = (
    *("..", ".", "%2e%2e", "%2e", "%2E%2E%2F", "..%2f..%2fsecrets", f"..%2f..%2f{KEPT}%2fconfigmaps%2f{KEPT}"),
    *("%2f", "%2F%2F", "a%2fb", f"a/../../{KEPT}", "%5c", "..%5c..", "\\", "%252e%252e", "%25"),
    *("%00", "a%00b", "%01", "%0d%0aSet-Cookie:%20x", "%0a", "%7f", "%ff%fe", "%c0%af", "%c0%ae%c0%ae", "%f4%90%80%80"),
    *("%", "%zz", "%u002e", "\xe9", "\xc3\xa9", "\xff", "%ed%a0%80", "%e2%80%ae", "%ef%bb%bf", "%f0%9f%92%a9"),
    *("", "~", "*", "@", ":", ";x=1", "a;b", "a,b", "+", "%20", "$metadata", "{name}", "'", "(", "-", "A" * 300),
    *("namespaces", "status", "finalize", "scale", "log", "exec", "proxy", "watch", "metadata", "x" * 8000),
    "%61" * 2000,
)  # fmt: skip


def named(random: Random, resource: Resource, namespace: str, name: str) -> str:
    """An object's path, with or without a subresource."""
    part = random.choice((*[""] * 9, *resource.subresources, "scale"))
    path = f"{resource.collection(namespace)}/{name}"
    return f"{path}/{part}" if part else path


def document(random: Random, world: World) -> str:
    """Something that is no resource."""
    path = random.choice(
        (*world.documents, "/", "/version", "/readyz", "/openapi/v2", "/metrics", "/debug/pprof", "/nope")
    )
    return random.choice(("", MANAGEMENT)) + path


def twisted(random: Random, path: str) -> str:
    """The path with one thing wrong with it."""
    steps = path.split("/")[1:] or [""]
    at = random.randrange(len(steps))
    trick = random.choice(TRICKS)
    match random.randrange(9):
        case 0 | 1 | 2:
            steps[at] = trick
        case 3:
            steps.insert(at, trick)
        case 4:
            steps.append(trick)
        case 5:
            del steps[at]
        case 6:
            steps[at] = _upper(steps[at]) if random.random() < 0.5 else f"{steps[at]}{trick}"
        case 7:
            steps = steps * random.choice((2, 40))
        case _:
            return random.choice(
                (f"/{path}", f"{path}/", f"{path}//", path[1:] or "*", f"https://other.test{path}", "*")
            )
    return "/" + "/".join(steps)


def _upper(step: str) -> str:
    """Of bytes: what is not ASCII stays as it is."""
    return step.encode("latin-1").upper().decode("latin-1")
