"""Label classes of occupants: pods with the same namespace and labels are alike to every selector, and are matched once.

Both directions are indexed, so that neither a new label class nor a new term looks at everything: a selector that asks for a
label's value is found by that label, and finds by it.
"""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from restow.domain.topology.domains import Count, Domains
from restow.domain.topology.terms import CarriedTerm, Rule, Selector

Pair = tuple[str, str]
T = TypeVar("T")
EVERYWHERE = "*"
"""No namespace has this name."""


class Carried(Count):
    """Occupants that bring this term along, to be seen by `domains` of its key."""

    __slots__ = ("domains", "term")

    def __init__(self, serial: int, term: CarriedTerm, domains: Domains) -> None:
        super().__init__(serial)
        self.term = term
        self.domains = domains


class Matching(Count):
    """Occupants that all `rules` are about; with `live`, terminating ones do not count."""

    __slots__ = ("live", "rules")

    def __init__(self, serial: int, rules: tuple[Rule, ...], live: bool) -> None:
        super().__init__(serial)
        self.rules = rules
        self.live = live


class LabelClass:
    """Where its occupants are, by row: `there`, and `live` without those that terminate. `matched` are the counts that it
    is a part of; `hits` the carried terms that are about it, as of `hits_at`. `gone`: forgotten by the index."""

    __slots__ = ("gone", "hits", "hits_at", "home", "key", "labels", "live", "matched", "namespace", "there")

    def __init__(self, home: object, namespace: str, labels: dict[str, str], key: frozenset[Pair]) -> None:
        self.home = home
        self.namespace = namespace
        self.labels = labels
        self.key = key
        self.there: dict[int, int] = {}
        self.live: dict[int, int] = {}
        self.matched: dict[Matching, None] = {}
        self.hits: tuple[Carried, ...] = ()
        self.hits_at = -1
        self.gone = False


class LabelClasses:
    """All label classes, found by namespace and label."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, frozenset[Pair]], LabelClass] = {}
        self._by_label: dict[str, dict[Pair, dict[LabelClass, None]]] = {}
        self._in: dict[str, dict[LabelClass, None]] = {}

    def __iter__(self) -> Iterator[LabelClass]:
        return iter(self._known.values())

    def get(self, namespace: str, key: frozenset[Pair]) -> LabelClass | None:
        return self._known.get((namespace, key))

    def add(self, label_class: LabelClass) -> None:
        self._known[label_class.namespace, label_class.key] = label_class
        self._in.setdefault(label_class.namespace, {})[label_class] = None
        by_label = self._by_label.setdefault(label_class.namespace, {})
        for pair in label_class.key:
            by_label.setdefault(pair, {})[label_class] = None

    def discard(self, label_class: LabelClass) -> None:
        label_class.gone = True
        del self._known[label_class.namespace, label_class.key]
        del self._in[label_class.namespace][label_class]
        by_label = self._by_label[label_class.namespace]
        for pair in label_class.key:
            del by_label[pair][label_class]
            if not by_label[pair]:
                del by_label[pair]

    def within(self, namespace: str) -> Iterable[LabelClass]:
        return self._in.get(namespace, ())

    def candidates(self, rule: Rule) -> Iterator[LabelClass]:
        """No label class that the rule is about is missing."""
        if rule.selector is None:
            return
        scattered = rule.everywhere or rule.namespace_selector is not None
        for namespace in list(self._in) if scattered else rule.namespaces:
            yield from self._within(namespace, rule.selector)

    def _within(self, namespace: str, selector: Selector) -> Iterable[LabelClass]:
        options = _options(selector)
        if not options:
            return self._in.get(namespace, ())
        by_label = self._by_label.get(namespace, {})
        found = [[by_label.get(pair, {}) for pair in pairs] for pairs in options]
        least = min(found, key=lambda buckets: sum(map(len, buckets)))
        return (label_class for bucket in least for label_class in bucket)


class Finder(Generic[T]):
    """Things with a rule, found by the namespace and labels of a pod that they might be about."""

    def __init__(self) -> None:
        self._buckets: dict[str, dict[Pair | None, dict[T, None]]] = {}
        self._at: dict[T, list[tuple[str, Pair | None]]] = {}

    def add(self, thing: T, rule: Rule) -> None:
        if rule.selector is None:
            self._at[thing] = []
            return
        scattered = rule.everywhere or rule.namespace_selector is not None
        scopes = [EVERYWHERE] if scattered else list(dict.fromkeys(rule.namespaces))
        options: list[tuple[Pair | None, ...]] = [*_options(rule.selector)] or [(None,)]
        least = min(options, key=lambda pairs: (len(pairs), sum(self._filled(scopes[0], p) for p in pairs)))
        self._at[thing] = [(scope, pair) for scope in scopes for pair in least]
        for scope, pair in self._at[thing]:
            self._buckets.setdefault(scope, {}).setdefault(pair, {})[thing] = None

    def _filled(self, scope: str, pair: Pair | None) -> int:
        return len(self._buckets.get(scope, {}).get(pair, ()))

    def discard(self, thing: T) -> None:
        for scope, pair in self._at.pop(thing):
            bucket = self._buckets[scope][pair]
            del bucket[thing]
            if not bucket:
                del self._buckets[scope][pair]

    def candidates(self, namespace: str, pairs: Iterable[Pair]) -> list[T]:
        found: list[T] = []
        for scope in (namespace, EVERYWHERE):
            buckets = self._buckets.get(scope)
            if not buckets:
                continue
            for pair in (None, *pairs):
                if bucket := buckets.get(pair):
                    found.extend(bucket)
        return found


def _options(selector: Selector) -> list[tuple[Pair, ...]]:
    """Each is a set of labels of which a selected pod has one."""
    options: list[tuple[Pair, ...]] = [(pair,) for pair in selector.pairs]
    options.extend(
        tuple((e.key, value) for value in dict.fromkeys(e.values)) for e in selector.expressions if e.operator == "In"
    )
    return options
