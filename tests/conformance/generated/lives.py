"""Random lives of objects: the same seed makes the same life.

An object is created or applied, read, replaced, patched in every way, applied by several managers and deleted, with the
mistakes that clients make mixed in. Some lives are about one thing more: a watch beside it, the deletion of a
collection, two clients that race, an owner and its dependents. What the right answers are, only a reference says.
"""

import random
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.generated import mistakes, options, patches
from tests.conformance.generated.kinds import NAMESPACE, GeneratedKind, generated_kinds
from tests.conformance.generated.namespaces import namespace_steps
from tests.conformance.generated.steps import Life, Race, Request, Step, Watch
from tests.conformance.generated.values import Source, fields_of, metadata_of

Json = Any
NAMESPACE_PROBABILITY = 0.02
_STATUSES: tuple[Json, ...] = (
    *({"phase": ""}, {"phase": 5}, {"reason": "Why"}, {"phase": "", "bogus": 1}, {"bogus": 1}),
    *("x", True, None, {}),
)
_THEMES = {"plain": 12, "watch": 3, "deletecollection": 1, "race": 2, "owner": 1}


def make_life(seed: str, number: int, kinds: Iterable[str] = ()) -> Life:
    """The life of that number. `kinds` are plurals, or `plural.group`, to choose from; all without any."""
    source = Source(random.Random(f"{seed}/{number}"))
    name = f"{seed}-{number}"
    chosen = [kind for kind in generated_kinds() if not kinds or {kind.key, kind.plural} & {*kinds}]
    weights = [kind.weight for kind in chosen]
    if not any(weights) or (not kinds and source.chance(NAMESPACE_PROBABILITY)):
        namespaces = next(kind for kind in generated_kinds() if kind.plural == "namespaces")
        return Life(name, "namespaces", namespaces.collection, _clean(namespaces, "last"), namespace_steps(source))
    kind = source.random.choices(chosen, weights)[0]
    steps = _Writer(source, kind).write()
    return Life(name, kind.key, kind.collection, _clean(kind, "last"), tuple(steps))


def _clean(kind: GeneratedKind, name: str) -> Json:
    """An object without any mistakes."""
    return {**kind.type_meta, "metadata": {"name": name, "labels": {"run": "$run"}}, **deepcopy(kind.always)}


@dataclass(slots=True)
class _Writer:
    """Writes the steps of one life: `a-$run` is its object, `b-$run` another one, `o-$run` an owner."""

    source: Source
    kind: GeneratedKind
    steps: list[Step] = field(default_factory=list)

    @property
    def item(self) -> str:
        return f"{self.kind.collection}/a-$run"

    @property
    def namespace(self) -> str:
        return NAMESPACE if self.kind.namespaced else ""

    def write(self) -> list[Step]:
        if self.kind.has_controller:
            return [self._dry_run() for _ in range(self.source.random.randrange(3, 7))]
        themes = {**_THEMES, "owner": 0} if self.kind.plural == "events" else _THEMES  # an Event owns nothing
        theme = self.source.random.choices([*themes], [*themes.values()])[0]
        self._begin()
        write_theme: dict[str, Callable[[], None]] = {
            "plain": lambda: self._go_on(self.source.random.randrange(3, 9)),
            "watch": self._watch,
            "deletecollection": self._delete_collection,
            "race": self._race,
            "owner": self._own,
        }
        write_theme[theme]()
        self.steps.append(Request("GET", self.item))
        return self.steps

    def _begin(self) -> None:
        """Creates the object, with mistakes or not, and then surely."""
        source = self.source
        if source.chance(0.35):
            self.steps.append(self._apply("mgr-a"))
        else:
            self.steps.append(self._create())
        self.steps.append(Request("POST", self.kind.collection, _clean(self.kind, "a-$run")))
        self.steps.append(Request("GET", self.item, capture="object"))

    def _go_on(self, count: int) -> None:
        for _ in range(count):
            self.steps += self._some_requests()
            if self.source.chance(0.25):
                self.steps.append(Request("GET", self.item, capture="object"))

    def _some_requests(self) -> list[Request]:
        """One request, and what has to follow it."""
        makers: dict[Callable[[], Request], float] = {
            self._get: 2,
            self._list: 2,
            self._create: 1,
            self._replace: 4,
            self._json_patch: 5,
            self._merge_patch: 4,
            self._strategic_merge_patch: 2 if self.kind.is_built_in else 0,
            lambda: self._apply(self.source.pick("mgr-a", "mgr-b", "mgr-c")): 6,
            self._malformed: 0.5,
            self._subresource: 2 if self.kind.has_status else 0.4,
            self._delete: 1.2,
        }
        request = self.source.random.choices([*makers], [*makers.values()])[0]()
        if request.method != "DELETE":
            return [request]
        return [request, Request("GET", self.item, wait="collected")]

    def _whole(self, name: str = "a-$run") -> Json:
        source = self.source
        metadata = metadata_of(source, name, self.namespace)
        body = {**self.kind.type_meta, "metadata": metadata, **fields_of(source, self.kind)}
        if source.chance(0.12):
            mistakes.spoil_fields(source, body)
        if source.chance(0.15):
            mistakes.spoil_metadata(source, metadata)
        if source.chance(0.04):
            metadata["ownerReferences"] = mistakes.wrong_owners(source)
        if source.chance(0.03):
            mistakes.spoil_type(source, body)
        return body

    def _create(self) -> Request:
        body = self._whole()
        if self.source.chance(0.02):
            body["metadata"]["resourceVersion"] = self.source.pick("1", "0", "x", "")
        return Request("POST", self.kind.collection + options.query(self.source, "write"), body)

    def _dry_run(self) -> Request:
        if self.source.chance(0.4):
            body = patches.applied(self.source, self.kind, self.namespace)
            return self._patch(patches.APPLY_PATCH, body, "?dryRun=All&fieldManager=mgr-a")
        query = f"?dryRun=All&fieldValidation={self.source.pick('Strict', 'Warn', 'Warn', 'Ignore')}"
        return Request("POST", self.kind.collection + query, self._whole())

    def _get(self) -> Request:
        return Request("GET", self.item + options.query(self.source, "read"), headers=options.accept(self.source))

    def _list(self) -> Request:
        query = options.query(self.source, "read", "list", first=[options.selector(self.source)])
        return Request("GET", self.kind.collection + query, headers=options.accept(self.source))

    def _replace(self) -> Request:
        source, body = self.source, self._whole()
        metadata = body["metadata"]
        if not self.kind.is_built_in or source.chance(0.7):
            metadata["resourceVersion"] = source.pick("$rv", "$rv", "$rv", "$rv", "1", "x")
        if source.chance(0.1):
            metadata["uid"] = source.pick("$uid", mistakes.OTHER_UID)
        return Request("PUT", self.item + options.query(source, "write"), body)

    def _patch(self, media_type: str, body: Json, query: str, text: str = "") -> Request:
        return Request("PATCH", self.item + query, body, {"Content-Type": media_type}, text)

    def _json_patch(self) -> Request:
        query = options.query(self.source, "write")
        return self._patch(patches.JSON_PATCH, patches.operations(self.source, self.kind), query)

    def _merge_patch(self) -> Request:
        query = options.query(self.source, "write")
        return self._patch(patches.MERGE_PATCH, patches.merge_patch(self.source, self.kind), query)

    def _strategic_merge_patch(self) -> Request:
        query = options.query(self.source, "write")
        return self._patch(patches.STRATEGIC_MERGE_PATCH, patches.strategic_merge_patch(self.source, self.kind), query)

    def _apply(self, manager: str) -> Request:
        query = options.query(self.source, "force", first=[f"fieldManager={manager}"])
        return self._patch(patches.APPLY_PATCH, patches.applied(self.source, self.kind, self.namespace), query)

    def _malformed(self) -> Request:
        source, text = self.source, self.source.pick(*mistakes.MALFORMED)
        if source.chance(0.4):
            return Request("PUT", self.item, text=text)
        media_types = (patches.JSON_PATCH, patches.MERGE_PATCH, patches.APPLY_PATCH, "text/plain")
        query = "?fieldManager=mgr-a" if source.chance(0.5) else ""
        return self._patch(source.pick(*media_types), None, query, text)

    def _subresource(self) -> Request:
        source = self.source
        if not self.kind.has_status or source.chance(0.2):
            return Request("GET", f"{self.item}/{source.pick('scale', 'nope', 'status', 'nope/x')}")
        path = f"{self.item}/status"
        status = {"status": source.pick(*_STATUSES)}
        match source.pick("get", "put", "merge", "apply", "json"):
            case "get":
                return Request("GET", path)
            case "put":
                body = self._whole() | status
                body["metadata"]["resourceVersion"] = source.pick("$rv", "$rv", "$rv", "1")
                return Request("PUT", path, body)
            case "merge":
                metadata = {"metadata": {"labels": {"a": source.pick("x", None)}}} if source.chance(0.3) else {}
                return Request("PATCH", path, status | metadata, {"Content-Type": patches.MERGE_PATCH})
            case "json":
                operation = {"op": "add", "path": "/status", "value": status["status"]}
                return Request("PATCH", path, [operation], {"Content-Type": patches.JSON_PATCH})
        body = {**self.kind.type_meta, "metadata": {"name": "a-$run"}, **status}
        return Request("PATCH", f"{path}?fieldManager=mgr-s", body, {"Content-Type": patches.APPLY_PATCH})

    def _delete(self) -> Request:
        query = options.query(self.source, "write")
        return Request("DELETE", self.item + query, options.delete_options(self.source))

    def _watch(self) -> None:
        """A watch beside a few writes: from now, from a version, or with initial events; also of a part by label."""
        source = self.source
        if source.chance(0.5):
            self._go_on(2)
            self.steps.append(Request("GET", self.item, capture="object"))
        started = source.pick(
            *("", "&resourceVersion=0", "&resourceVersion=$rv", "&resourceVersion=x", "&allowWatchBookmarks=true"),
            "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
            "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=$rv",
            *("&sendInitialEvents=true", "&fieldSelector=metadata.name!=b-$run&resourceVersion=$rv", "&limit=1"),
        )
        chosen = source.pick("run=$run", "run=$run", "run=$run,a!=two", "run=$run,!gone")
        during = [request for _ in range(source.random.randrange(1, 5)) for request in self._some_requests()]
        if source.chance(0.6):
            for value in source.pick(("two", "one", "two"), ("two", None), ("one", "two", "one")):
                body = {"metadata": {"labels": {"a": value, "gone": value}}}
                at = source.random.randrange(len(during) + 1)
                during.insert(at, self._patch(patches.MERGE_PATCH, body, ""))
        headers = options.accept(source) if source.chance(0.2) else {}
        path = f"{self.kind.collection}?watch=1&labelSelector={chosen}{started}"
        self.steps.append(Watch(path.replace("!", "%21"), tuple(during), headers))

    def _delete_collection(self) -> None:
        source, collection = self.source, self.kind.collection
        for name in ("b-$run", "c-$run"):
            self.steps.append(Request("POST", collection, self._whole(name)))
        self._go_on(source.random.randrange(2))
        query = options.query(source, "write", first=[options.selector(source)])
        if source.chance(0.3):
            deletion = Request("DELETE", collection + query)
            self.steps.append(Watch(f"{collection}?watch=1&labelSelector=run=$run", (deletion,)))
        else:
            self.steps.append(Request("DELETE", collection + query, options.delete_options(source)))
        for name in ("a-$run", "b-$run", "c-$run"):
            self.steps.append(Request("GET", f"{collection}/{name}", wait="collected"))
        self.steps.append(Request("GET", f"{collection}?labelSelector=run=$run"))

    def _race(self) -> None:
        """Two writes at once, after a read that captures the version that both expect."""
        writes = (self._replace, self._json_patch, self._merge_patch, lambda: self._apply("mgr-b"), self._create)
        self._go_on(self.source.random.randrange(3))
        self.steps.append(Request("POST", self.kind.collection, _clean(self.kind, "a-$run")))
        self.steps.append(Request("GET", self.item, capture="object"))
        left, right = (self.source.pick(*writes)() for _ in range(2))
        if self.source.chance(0.15):
            right = Request("DELETE", self.item)
        self.steps.append(Race(left, right))

    def _own(self) -> None:
        """An owner with one dependent, or two, and its deletion with each policy."""
        source, collection = self.source, self.kind.collection
        owner = _clean(self.kind, "o-$run")
        if source.chance(0.3):
            owner["metadata"]["finalizers"] = ["example.com/f"]
        self.steps.append(Request("POST", collection, owner, capture="owner"))
        reference = {**self.kind.type_meta, "name": "o-$run", "uid": "$owner"}
        reference |= source.pick({}, {"blockOwnerDeletion": True}, {"controller": True}, {"controller": False})
        names = ("a-$run", "b-$run") if source.chance(0.5) else ("a-$run",)
        body = {"metadata": {"ownerReferences": [reference] * source.pick(1, 1, 2)}}
        for name in names:
            self.steps.append(Request("POST", collection, _clean(self.kind, name)))
            self.steps.append(Request("PATCH", f"{collection}/{name}", body, {"Content-Type": patches.MERGE_PATCH}))
        policy = source.pick("Orphan", "Background", "Foreground")
        removal = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}
        self.steps.append(Request("DELETE", f"{collection}/o-$run", removal))
        if "finalizers" in owner["metadata"]:
            self.steps.append(Request("GET", f"{collection}/o-$run", wait="collected"))
            release = {"metadata": {"finalizers": None}}
            media_type = {"Content-Type": patches.MERGE_PATCH}
            self.steps.append(Request("PATCH", f"{collection}/o-$run", release, media_type))
        self.steps.append(Request("GET", f"{collection}/o-$run", wait="gone"))
        for name in names:
            self.steps.append(Request("GET", f"{collection}/{name}", wait="" if policy == "Orphan" else "gone"))
