"""Volcano's HyperNodes → facts: which nodes are near to each other in the network."""

import re

import msgspec

from restow.contracts import events as e
from restow.contracts.values import BlockMember
from restow.kube import selectors
from restow.kube import wire_objects as w
from restow.kube.decode import BAD_JSON
from restow.kube.explain import explained
from restow.kube.requests import FactError

_spec = msgspec.json.Decoder(w.HyperNodeSpec)
_INNER, _NODE = "HyperNode", "Node"
_LONGEST, _REPEATS = 512, 3
_MOST = 2**31 - 1


def hyper_node_fact(hyper_node: w.Custom) -> e.HyperNodeObserved:
    """Never raises for what the object says."""
    fact = e.HyperNodeObserved(hyper_node.metadata.name)
    try:
        try:
            spec = _spec.decode(hyper_node.spec)
        except BAD_JSON as error:
            raise FactError(explained(_spec, str(error), hyper_node.spec)) from error
        if not 0 <= spec.tier <= _MOST:
            raise FactError(f"spec.tier: {spec.tier}; allowed: 0 to {_MOST}")
        fact = msgspec.structs.replace(fact, tier=spec.tier, tier_name=spec.tier_name or "")
        members = [_member(member, f"spec.members[{i}]") for i, member in enumerate(spec.members or ())]
        return msgspec.structs.replace(fact, members=tuple(member for member in members if member is not None))
    except FactError as error:
        return msgspec.structs.replace(fact, invalid=str(error))


def _member(said: w.HyperNodeMember, path: str) -> BlockMember | None:
    """None for one that selects nobody."""
    if said.type not in (_NODE, _INNER):
        raise FactError(f"{path}.type: {said.type!r}; allowed: {_NODE}, {_INNER}")
    selector = said.selector or w.MemberSelector()
    if said.type == _INNER or selector.exact_match is not None:
        name = selector.exact_match.name if selector.exact_match is not None else ""
        return BlockMember(name, said.type == _INNER) if name else None
    if selector.regex_match is not None:
        _check(selector.regex_match.pattern, f"{path}.selector.regexMatch.pattern")
        return BlockMember(pattern=selector.regex_match.pattern)
    found = selectors.selector(selector.label_match)
    return None if found is None or not (found.labels or found.expressions) else BlockMember(selector=found)


def _check(pattern: str, path: str) -> None:
    """Go matches in linear time, Python does not: what might take for ever is refused. Raises FactError."""
    if len(pattern) > _LONGEST:
        raise FactError(f"{path}: {len(pattern)} characters; allowed: up to {_LONGEST}")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise FactError(f"{path}: {pattern!r}: {error}; allowed: a regular expression") from None
    if _repeats(pattern) > _REPEATS or re.search(r"\\[1-9]|\(\?[^:]", pattern):
        raise FactError(f"{path}: {pattern!r}; allowed: at most {_REPEATS} of * + {{}}, none of them around another one or around a choice, and no (?…) but (?:")


def _repeats(pattern: str) -> int:
    """How many repetitions a pattern has; more than are allowed where one is around another one or around a choice."""
    bare = re.sub(r"\\.|\[\^?\]?[^\]]*\]", "x", pattern)
    for group in re.finditer(r"\(", bare):
        depth, end = 0, group.start()
        for end in range(group.start(), len(bare)):
            depth += (bare[end] == "(") - (bare[end] == ")")
            if not depth:
                break
        inside, after = bare[group.start() : end], bare[end + 1 : end + 2]
        if after in ("*", "+", "{") and re.search(r"[*+{|?]", inside.replace("(?:", "(")):
            return _REPEATS + 1
    return len(re.findall(r"[*+{]", bare))
