"""Blocks by Volcano's HyperNodes.

A HyperNode belongs to the one that names it as a member: of several the narrowest, of equals the first by name, and only to one of a higher tier. A node
belongs to the narrowest that it is a member of, then to those around that; what else names it counts in tiers where it is in none of these."""

import re
from collections.abc import Iterable, Iterator, Mapping

from restow.contracts.events import HyperNodeObserved
from restow.contracts.values import LabelSelector
from restow.domain.network.blocks import Chain, Tier
from restow.domain.selectors import selects


class HyperNodes:
    """Of these objects, as they are: others make another source."""

    def __init__(self, facts: Iterable[HyperNodeObserved]) -> None:
        # The narrowest first, so that whoever comes first counts.
        ordered = sorted(facts, key=lambda fact: (fact.tier, fact.name))
        self._tier = {fact.name: fact.tier for fact in ordered}
        names: dict[int, list[str]] = {}
        for fact in ordered:
            names.setdefault(fact.tier, []).append(fact.tier_name)
        self.tiers = tuple(Tier(number, min((name for name in said if name), default="")) for number, said in names.items())
        self._place = {tier.number: i for i, tier in enumerate(self.tiers)}
        self._parent: dict[str, str] = {}
        self._named: dict[str, list[str]] = {}
        self._patterns: list[tuple[re.Pattern[str], str]] = []
        self._selectors: list[tuple[LabelSelector, str]] = []
        for fact in ordered:
            for member in fact.members:
                if member.inner:
                    if member.name in self._tier and self._tier[member.name] < fact.tier:
                        self._parent.setdefault(member.name, fact.name)
                elif member.pattern:
                    self._patterns.append((re.compile(member.pattern), fact.name))
                elif member.selector is not None:
                    self._selectors.append((member.selector, fact.name))
                else:
                    self._named.setdefault(member.name, []).append(fact.name)

    def chain(self, node: str, labels: Mapping[str, str]) -> Chain:
        found = [""] * len(self.tiers)
        for name in sorted(set(self._of(node, labels)), key=lambda name: (self._tier[name], name)):
            while name:
                place = self._place[self._tier[name]]
                if found[place]:
                    break
                found[place] = name
                name = self._parent.get(name, "")
        return tuple(found)

    def _of(self, node: str, labels: Mapping[str, str]) -> Iterator[str]:
        yield from self._named.get(node, ())
        yield from (name for pattern, name in self._patterns if pattern.search(node))
        yield from (name for selector, name in self._selectors if selects(selector, labels))
