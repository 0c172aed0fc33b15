"""Generates paths: those of every resource, object, subresource and document, and malformed variants."""

from random import Random

from tests.harness.server_process import MANAGEMENT
from tests.requests.api_resources import PROTECTED, ApiCatalog, Resource

NAMES = ("a", "a", "a", "b", "fuzz-1")
"""Names of the objects that the fuzzer writes to. Only the last two are ever deleted without a dry run."""
ODD_SEGMENTS = (
    *("..", ".", "%2e%2e", "%2e", "%2E%2E%2F", "..%2f..%2fsecrets"),
    f"..%2f..%2f{PROTECTED}%2fconfigmaps%2f{PROTECTED}",
    *("%2f", "%2F%2F", "a%2fb", f"a/../../{PROTECTED}", "%5c", "..%5c..", "\\", "%252e%252e", "%25"),
    *("%00", "a%00b", "%01", "%0d%0aSet-Cookie:%20x", "%0a", "%7f", "%ff%fe", "%c0%af", "%c0%ae%c0%ae", "%f4%90%80%80"),
    *("%", "%zz", "%u002e", "\xe9", "\xc3\xa9", "\xff", "%ed%a0%80", "%e2%80%ae", "%ef%bb%bf", "%f0%9f%92%a9"),
    *("", "~", "*", "@", ":", ";x=1", "a;b", "a,b", "+", "%20", "$metadata", "{name}", "'", "(", "-", "A" * 300),
    *("namespaces", "status", "finalize", "scale", "log", "exec", "proxy", "watch", "metadata", "x" * 8000),
    "%61" * 2000,
)  # fmt: skip


def choose_object_path(random: Random, resource: Resource, namespace: str, name: str) -> str:
    """Chooses an object's path, with or without a subresource."""
    part = random.choice((*[""] * 9, *resource.subresources, "scale"))
    path = f"{resource.collection_path(namespace)}/{name}"
    return f"{path}/{part}" if part else path


def choose_document_path(random: Random, catalog: ApiCatalog) -> str:
    """Chooses a path that is not a resource."""
    path = random.choice(
        (*catalog.documents, "/", "/version", "/readyz", "/openapi/v2", "/metrics", "/debug/pprof", "/nope")
    )
    return random.choice(("", MANAGEMENT)) + path


def mutate_path(random: Random, path: str) -> str:
    """Returns the path with one fault."""
    segments = path.split("/")[1:] or [""]
    at = random.randrange(len(segments))
    odd = random.choice(ODD_SEGMENTS)
    match random.randrange(9):
        case 0 | 1 | 2:
            segments[at] = odd
        case 3:
            segments.insert(at, odd)
        case 4:
            segments.append(odd)
        case 5:
            del segments[at]
        case 6:
            segments[at] = _to_upper(segments[at]) if random.random() < 0.5 else f"{segments[at]}{odd}"
        case 7:
            segments = segments * random.choice((2, 40))
        case _:
            return random.choice(
                (f"/{path}", f"{path}/", f"{path}//", path[1:] or "*", f"https://other.test{path}", "*")
            )
    return "/" + "/".join(segments)


def _to_upper(segment: str) -> str:
    """Converts ASCII letters to upper case, byte by byte."""
    return segment.encode("latin-1").upper().decode("latin-1")
