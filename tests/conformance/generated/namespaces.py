"""Lives of namespaces: created, filled, held back by finalizers, deleted with their content.

A namespace ends asynchronously. So each life holds its namespace with a finalizer of its own while it looks at the
terminating one, then lets it go, and waits until it is gone.
"""

from typing import Any

from tests.conformance.generated.patches import APPLY_PATCH, JSON_PATCH, MERGE_PATCH
from tests.conformance.generated.steps import Request, Step
from tests.conformance.generated.values import Source, labels_of

Json = Any
NAME = "n-$run"
COLLECTION = "/api/v1/namespaces"
ITEM = f"{COLLECTION}/{NAME}"
HOLD = "example.com/hold"
_TYPE: Json = {"apiVersion": "v1", "kind": "Namespace"}


def namespace_steps(source: Source) -> tuple[Step, ...]:
    metadata = {"name": NAME, "labels": labels_of(source), "finalizers": ["example.com/f"]}
    steps: list[Step] = [Request("POST", COLLECTION, {**_TYPE, "metadata": metadata, **_spec(source)})]
    steps.append(Request("POST", COLLECTION, {**_TYPE, "metadata": metadata}))
    steps.append(Request("GET", ITEM, capture="object"))
    steps += [_write(source) for _ in range(source.random.randrange(1, 4))]
    steps += [_content(source, number) for number in range(source.random.randrange(1, 4))]
    steps.append(Request("DELETE", f"{COLLECTION}/{NAME}", source.pick(None, {"propagationPolicy": "Background"})))
    steps.append(_content(source, 7))
    steps += [_write(source) for _ in range(source.random.randrange(3))]
    if source.chance(0.3):
        steps.append(Request("DELETE", ITEM))
    steps += _end()
    return tuple(steps)


def _end() -> list[Step]:
    """Takes the finalizers away, so that the namespace is gone in the end."""
    release = {"metadata": {"finalizers": None}}
    return [
        Request("PATCH", ITEM, release, {"Content-Type": MERGE_PATCH}),
        Request("GET", ITEM, wait="gone"),
        Request("GET", f"{ITEM}/configmaps?labelSelector=run=$run"),
        Request("GET", ITEM),
    ]


def _spec(source: Source) -> Json:
    finalizers = {"spec": {"finalizers": source.pick(["kubernetes"], [], ["kubernetes", "example.com/g"], ["plain"])}}
    return source.pick({}, {}, {"spec": {}}, {"spec": {"bogus": 1}}, finalizers)


def _write(source: Source) -> Request:
    """A write of the namespace itself or of a subresource. None of them changes how it ends."""
    merge = {"Content-Type": MERGE_PATCH}
    whole = {**_TYPE, "metadata": {"name": NAME, "labels": labels_of(source), "finalizers": ["example.com/f"]}}
    request: Request = source.pick(
        Request("PATCH", ITEM, {"metadata": {"labels": {"a": source.pick("x", None), "run": "$run"}}}, merge),
        Request("PATCH", ITEM, [{"op": "replace", "path": "/spec", "value": {}}], {"Content-Type": JSON_PATCH}),
        Request("PATCH", ITEM, {"spec": {"finalizers": []}}, merge),
        Request("PATCH", ITEM, {"status": {"phase": source.pick("Active", "Terminating", "x")}}, merge),
        Request("PUT", ITEM, whole),
        Request("PATCH", f"{ITEM}?fieldManager=mgr-a", whole, {"Content-Type": APPLY_PATCH}),
        Request("GET", f"{ITEM}/status"),
        Request("GET", f"{ITEM}/finalize"),
        Request("PUT", f"{ITEM}/finalize", {**whole, "spec": {"finalizers": ["not/valid/"]}}),
        Request("GET", f"{COLLECTION}?labelSelector=run=$run&fieldSelector=metadata.name={NAME}"),
        Request("GET", f"{COLLECTION}?labelSelector=run=$run&fieldSelector=status.phase=Active"),
    )
    return request


def _content(source: Source, number: int) -> Request:
    """An object in the namespace; once that is terminating, it is rejected."""
    metadata = {"name": f"c{number}-$run", "labels": {"run": "$run"}}
    kind, path = source.pick(
        ({"apiVersion": "v1", "kind": "ConfigMap"}, f"{ITEM}/configmaps"),
        ({"apiVersion": "v1", "kind": "Secret"}, f"{ITEM}/secrets"),
        (
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"},
            f"/apis/coordination.k8s.io/v1/namespaces/{NAME}/leases",
        ),
        ({"apiVersion": "v1", "kind": "ConfigMap"}, f"{ITEM}/nothing"),
    )
    return Request("POST", path, {**kind, "metadata": metadata})
