"""ControllerRevisions: the history of a StatefulSet's or DaemonSet's template, by hash."""

from __future__ import annotations

from restow.kubesim.objects import Obj, clone
from restow.kubesim.podstate import is_deleting, owner_reference, uid_of
from restow.kubesim.resources import CONTROLLERREVISIONS, Resource
from restow.kubesim.store import Store
from restow.kubesim.workloads.common import ignore_gone, safe_hash

HASH_LABEL = "controller-revision-hash"


def revision_name(owner: Obj) -> str:
    """The name of the revision of the present template."""
    return f"{owner['metadata']['name']}-{safe_hash(owner['spec']['template'])}"


def owned(store: Store, owner: Obj) -> list[Obj]:
    """The owner's revisions, oldest first."""
    found = [obj for resource, obj in store.dependents(uid_of(owner)) if resource == CONTROLLERREVISIONS]
    return sorted(found, key=lambda obj: obj.get("revision", 0))


def ensure(store: Store, owner: Obj, resource: Resource) -> str:
    """The name of the revision of the present template, which exists and has the highest number afterwards."""
    name, known = revision_name(owner), owned(store, owner)
    namespace = owner["metadata"].get("namespace", "")
    last = known[-1] if known else None
    if last is not None and last["metadata"]["name"] == name:
        return name
    number = (last or {}).get("revision", 0) + 1
    for revision in known:
        if revision["metadata"]["name"] == name:
            store.update(CONTROLLERREVISIONS, {**revision, "revision": number})
            return name
    labels = dict((owner["spec"]["template"].get("metadata") or {}).get("labels") or {})
    labels[HASH_LABEL] = name if resource.plural == "statefulsets" else name.rpartition("-")[2]
    body = {
        "metadata": {
            "name": name,
            "labels": labels,
            "ownerReferences": [owner_reference(owner, resource.api_version, resource.kind)],
        },
        "data": {"spec": {"template": {**clone(owner["spec"]["template"]), "$patch": "replace"}}},
        "revision": number,
    }
    store.create(CONTROLLERREVISIONS, body, namespace, owned=True)
    return name


def template_of(store: Store, owner: Obj, name: str) -> Obj:
    """The template of a revision; the present one if that revision is gone."""
    found = store.find(CONTROLLERREVISIONS, owner["metadata"].get("namespace", ""), name)
    if found is None:
        return owner["spec"]["template"]
    return {k: v for k, v in found["data"]["spec"]["template"].items() if k != "$patch"}


def clean_up(store: Store, owner: Obj, live: set[str]) -> None:
    """Keep `revisionHistoryLimit` revisions beside those that are in use."""
    limit = owner["spec"].get("revisionHistoryLimit")
    namespace = owner["metadata"].get("namespace", "")
    idle = [r["metadata"]["name"] for r in owned(store, owner) if r["metadata"]["name"] not in live]
    surplus = len(idle) - (10 if limit is None else limit)
    if is_deleting(owner):
        return
    for name in idle[: max(surplus, 0)]:
        ignore_gone(lambda name=name: store.delete(CONTROLLERREVISIONS, namespace, name))
