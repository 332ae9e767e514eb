"""How far behind the API the facts are, as far as this process can tell: what has come and is not in the log, and what is not watched."""

from collections.abc import Callable, Iterable, Mapping

from restow.cluster_watcher.observer import Observer
from restow.kube.decode import COLLECTIONS
from restow.runtime.telemetry import Labelled, Metrics


def expose(metrics: Metrics, observer: Observer, synced: Callable[[], Mapping[str, bool]]) -> None:
    observer.lagged = metrics.histogram("watch_lag", "From when a change came until it is in the log; of each commit its oldest").labels(metrics.family).observe

    for collection in COLLECTIONS:
        # From zero on: whoever looks for a rise would not see the first one.
        metrics.undecodable.labels(metrics.family, collection.kind)

    def read() -> Iterable[Labelled]:
        yield Labelled.one("watch_oldest_seconds", "For how long the oldest change waits that is not in the log", observer.lag)
        yield Labelled.one("watch_waiting", "Changes that are not in the log", observer.waiting)
        rows = [((kind,), float(whole)) for kind, whole in synced().items()]
        yield Labelled("watch_synced", "1 where a collection was listed to its end and is watched, or nobody serves it", ("kind",), rows)

    metrics.labelled(read)
