"""Metrics. Labels are resolved once, so that nothing is looked up per event."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from restow.contracts.ids import Family

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """One service's metrics, in a registry of its own."""

    def __init__(self, family: Family) -> None:
        self.registry = CollectorRegistry()
        common: dict[str, Any] = {"registry": self.registry}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"restow_{name}", text, ("family", *labels), **common)

        histogram = self.histogram

        self.commits = counter("commits", "Commits appended to the log").labels(family)
        self.events = counter("events_decided", "Events in those commits").labels(family)
        self.conflicts = counter("commit_conflicts", "Commits refused because the family had moved on").labels(family)
        self.unknown = counter("commits_unanswered", "Commits whose answer was lost").labels(family)
        self.rejected = counter("commands_rejected", "Commands that made no sense").labels(family)
        self.decide = histogram("decide", "Time to decide one commit").labels(family)
        self.append = histogram("append", "Time until a commit is durable").labels(family)
        self.reaction = histogram("reaction", "From the first commit of others that was not looked at yet until what was decided on it is durable").labels(family)
        self.bytes = counter("commit_bytes", "Bytes of those commits").labels(family)
        self.undecodable = counter("objects_undecodable", "Kubernetes objects that could not be read", "kind")
        self.restarts = counter("watch_restarts", "Lists and watches that began again", "kind", "reason")
        self._effects = counter("effects", "Effects attempted", "kind", "outcome")
        self._effect_seconds = histogram("effect", "Time of one attempt", "kind")
        self.family = family

    def histogram(self, name: str, text: str, *labels: str) -> Histogram:
        """In seconds; the first label is the family."""
        return Histogram(f"restow_{name}_seconds", text, ("family", *labels), buckets=SECONDS, registry=self.registry)

    def effect(self, kind: str) -> tuple[Any, Any, Any]:
        """(done, retried, seconds) of one kind of effect."""
        return (
            self._effects.labels(self.family, kind, "done"),
            self._effects.labels(self.family, kind, "retried"),
            self._effect_seconds.labels(self.family, kind),
        )

    def gauges(self, read: Callable[[], dict[str, float]]) -> None:
        """Gauges read when scraped: name → value."""
        self.registry.register(_Gauges(self.family, read))


    def labelled(self, read: Callable[[], Iterable["Labelled"]]) -> None:
        """Gauges with labels of their own, read when scraped."""
        self.registry.register(_Labelled(self.family, read))


class _Gauges(Collector):
    def __init__(self, family: Family, read: Callable[[], dict[str, float]]) -> None:
        self._family, self._read = family, read

    def collect(self) -> Iterable[Metric]:
        for name, value in self._read().items():
            gauge = GaugeMetricFamily(f"restow_{name}", name.replace("_", " "), labels=("family",))
            gauge.add_metric((self._family,), value)
            yield gauge


class Labelled(msgspec.Struct, frozen=True):
    """One gauge: its name without `restow_`, what it says, its labels, and their values with what they have."""

    name: str
    text: str
    labels: tuple[str, ...]
    samples: Sequence[tuple[tuple[str, ...], float]]

    @classmethod
    def one(cls, name: str, text: str, value: float) -> "Labelled":
        """Of a gauge without labels."""
        return cls(name, text, (), [((), float(value))])


class _Labelled(Collector):
    def __init__(self, family: Family, read: Callable[[], Iterable[Labelled]]) -> None:
        self._family, self._read = family, read

    def describe(self) -> Iterable[Metric]:
        """Nothing: what it has is only known when it is read."""
        return ()

    def collect(self) -> Iterable[Metric]:
        for one in self._read():
            gauge = GaugeMetricFamily(f"restow_{one.name}", one.text, labels=("family", *one.labels))
            for values, amount in one.samples:
                gauge.add_metric((self._family, *values), amount)
            yield gauge
