"""JSON patch (RFC 6902), JSON merge patch (RFC 7386) and Kubernetes' strategic merge patch."""

from __future__ import annotations

from typing import Any

from restow.kubesim.errors import ApiError, bad_request
from restow.kubesim.objects import clone

# Lists that a strategic merge patch merges by key: (parent field, list field) -> merge key. The parent "" matches
# any place. Everything else is atomic. These are the patchMergeKey tags of the core types.
MERGE_KEYS: dict[tuple[str, str], str] = {
    ("", "containers"): "name",
    ("", "initContainers"): "name",
    ("", "ephemeralContainers"): "name",
    ("", "env"): "name",
    ("", "volumes"): "name",
    ("", "volumeMounts"): "mountPath",
    ("", "volumeDevices"): "devicePath",
    ("", "imagePullSecrets"): "name",
    ("", "hostAliases"): "ip",
    ("", "topologySpreadConstraints"): "topologyKey",
    ("", "schedulingGates"): "name",
    ("", "resourceClaims"): "name",
    ("", "resourceClaimStatuses"): "name",
    ("", "reservedFor"): "uid",
    ("", "ownerReferences"): "uid",
    ("", "conditions"): "type",
    ("container", "ports"): "containerPort",
    ("service", "ports"): "port",
    ("", "secrets"): "name",
    ("", "podIPs"): "ip",
    ("", "hostIPs"): "ip",
    ("node", "addresses"): "type",
}
# Lists of scalars that are sets.
MERGE_SETS = frozenset({"finalizers", "podCIDRs"})
# Objects where `$retainKeys` is used by apply.
_DIRECTIVES = ("$patch", "$retainKeys")


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


# -- JSON patch ---------------------------------------------------------------------------------------


def json_patch(document: Any, operations: Any) -> Any:
    """RFC 6902. 400 for malformed patches, 422 where an operation does not apply."""
    if not isinstance(operations, list):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch"
        )
    document = clone(document)
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise bad_request("error decoding patch: an operation needs op and path")
        document = _apply(document, operation)
    return document


def _does_not_apply(why: str) -> ApiError:
    return ApiError(422, "Invalid", f"the server rejected our request due to an error in our request: {why}")


def _pointer(path: str) -> list[str]:
    if path == "":
        return []
    if not path.startswith("/"):
        raise _does_not_apply(f"jsonpatch path {path!r} does not start with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]


def _step(container: Any, token: str) -> Any:
    if isinstance(container, dict) and token in container:
        return container[token]
    if isinstance(container, list):
        return container[_index(container, token, len(container) - 1)]
    raise _does_not_apply(f"missing path element {token!r}")


def _index(container: list[Any], token: str, highest: int) -> int:
    if not token.lstrip("-").isdigit():
        raise _does_not_apply(f"{token!r} is not an array index")
    index = int(token)
    if index < 0 or index > highest:
        raise _does_not_apply(f"array index {token} out of bounds")
    return index


def _lookup(document: Any, tokens: list[str]) -> Any:
    for token in tokens:
        document = _step(document, token)
    return document


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    kind, tokens = operation.get("op"), _pointer(operation["path"])
    if kind in ("add", "replace", "test") and "value" not in operation:
        operation = {**operation, "value": None}
    match kind:
        case "add":
            return _add(document, tokens, clone(operation["value"]))
        case "remove":
            _remove(document, tokens)
        case "replace":
            if not tokens:
                return clone(operation["value"])
            # As json-patch v4, which API servers use: a key that is not there is added (RFC 6902 refuses that).
            if not isinstance(_lookup(document, tokens[:-1]), dict):
                _lookup(document, tokens)
            _set(document, tokens, clone(operation["value"]))
        case "test":
            _test(document, operation, tokens)
        case "move" | "copy":
            origin = _pointer(str(operation.get("from", "")))
            value = clone(_lookup(document, origin))
            if kind == "move":
                _remove(document, origin)
            return _add(document, tokens, value)
        case _:
            raise bad_request(f"error decoding patch: unexpected kind: {kind}")
    return document


def _test(document: Any, operation: dict[str, Any], tokens: list[str]) -> None:
    try:
        actual = _lookup(document, tokens)
    except ApiError:
        actual = None
        if operation["value"] is not None:
            raise
    if actual != operation["value"] or isinstance(actual, bool) != isinstance(operation["value"], bool):
        raise _does_not_apply(f"testing value {operation['path']} failed: test failed")


def _add(document: Any, tokens: list[str], value: Any) -> Any:
    if not tokens:
        return value
    parent, last = _lookup(document, tokens[:-1]), tokens[-1]
    if isinstance(parent, list):
        index = len(parent) if last == "-" else _index(parent, last, len(parent))
        parent.insert(index, value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise _does_not_apply(f"cannot add to {last!r}: its parent is no container")
    return document


def _set(document: Any, tokens: list[str], value: Any) -> None:
    parent, last = _lookup(document, tokens[:-1]), tokens[-1]
    if isinstance(parent, list):
        parent[_index(parent, last, len(parent) - 1)] = value
    else:
        parent[last] = value


def _remove(document: Any, tokens: list[str]) -> None:
    if not tokens:
        raise _does_not_apply("cannot remove the whole document")
    _lookup(document, tokens)
    parent, last = _lookup(document, tokens[:-1]), tokens[-1]
    if isinstance(parent, list):
        del parent[_index(parent, last, len(parent) - 1)]
    else:
        del parent[last]


# -- strategic merge patch ------------------------------------------------------------------------------


def strategic_merge(target: Any, patch: Any, *, kind: str = "") -> Any:
    """Merge a strategic patch into an object of a built-in kind."""
    if not isinstance(patch, dict):
        raise bad_request("cannot unmarshal the patch into an object")
    return _merge_map(target if isinstance(target, dict) else {}, patch, kind.lower())


def _merge_map(target: dict[str, Any], patch: dict[str, Any], place: str) -> dict[str, Any]:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"unknown patch type found: {directive}")
    result = dict(target)
    retained = patch.get("$retainKeys")
    if retained is not None:
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key in _DIRECTIVES or key.startswith("$setElementOrder/"):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            if isinstance(result.get(name), list):
                result[name] = [item for item in result[name] if item not in value]
            continue
        _merge_field(result, key, value, place)
    _order(result, patch, place)
    return result


def _merge_field(result: dict[str, Any], key: str, value: Any, place: str) -> None:
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict):
        current = result.get(key)
        if value.get("$patch") == "delete":
            result.pop(key, None)
            return
        merged = _merge_map(current if isinstance(current, dict) else {}, value, _place(key, place))
        # Where nothing is there, taking something away makes nothing.
        if merged or current is not None or not value or any(one is not None for one in value.values()):
            result[key] = merged
    elif isinstance(value, list):
        current = result.get(key)
        if merged_list := _merge_list(current if isinstance(current, list) else [], value, key, place):
            result[key] = merged_list
        elif value:
            # Nothing is left of it: no such list is written.
            result.pop(key, None)
        else:
            result[key] = []
    else:
        result[key] = value


def _place(key: str, place: str) -> str:
    """Where a list lies matters for `ports` and `addresses` alone."""
    return place if key in ("spec", "status", "template") else ""


def merge_key(key: str, place: str) -> str | None:
    return MERGE_KEYS.get((place, key)) or MERGE_KEYS.get(("", key))


def _merge_list(current: list[Any], patch: list[Any], key: str, place: str) -> list[Any]:
    if key in MERGE_SETS:
        return [*current, *(item for item in patch if item not in current)]
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [_stripped(item) for item in patch if item.get("$patch") != "replace" or len(item) > 1]
    by = merge_key(key, place)
    if by is None:
        return [_stripped(item) for item in patch]
    result = list(current)
    for item in patch:
        if not isinstance(item, dict) or by not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {by}")
        position = next(
            (i for i, old in enumerate(result) if isinstance(old, dict) and old.get(by) == item[by]), None
        )
        if item.get("$patch") == "delete":
            result = [old for old in result if not (isinstance(old, dict) and old.get(by) == item[by])]
        elif position is None:
            result.append(_merge_map({}, item, _member(key)))
        else:
            result[position] = _merge_map(result[position], item, _member(key))
    return result


def _member(key: str) -> str:
    return "container" if key.lower().endswith("containers") else ""


def _stripped(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: value for key, value in item.items() if not key.startswith("$")}
    return item


def _order(result: dict[str, Any], patch: dict[str, Any], place: str) -> None:
    """`$setElementOrder/x` puts the named elements in that order; the others keep their places after them."""
    for directive, order in patch.items():
        if not directive.startswith("$setElementOrder/") or not isinstance(order, list):
            continue
        key = directive.partition("/")[2]
        items = result.get(key)
        if not isinstance(items, list):
            continue
        by = merge_key(key, place)
        wanted = [entry.get(by) if by and isinstance(entry, dict) else entry for entry in order]
        rank = {value: index for index, value in enumerate(wanted) if isinstance(value, str | int)}

        def path_of(item: Any, by: str | None = by, rank: dict[Any, int] = rank) -> int:
            value = item.get(by) if by and isinstance(item, dict) else item
            return rank.get(value, len(rank))

        result[key] = sorted(items, key=path_of)
