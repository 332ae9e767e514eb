"""How far behind the API the facts are, as far as this process can tell: what has come and is not in the log, and what is not watched."""

from collections.abc import Callable, Iterable, Mapping

from restow.cluster_watcher.observer import Observer
from restow.domain.claim_devices import claim_devices
from restow.domain.state import ClusterState
from restow.kube.decode import COLLECTIONS
from restow.runtime.telemetry import Labelled, Metrics

CLAIM_DEVICES = "Devices that drivers publish for ResourceClaims, by whether a claim has them, or could have them just now"
WHOLES = "The same of whole devices, of which a claim may have a part: those of which nobody has any, and others"


def expose(metrics: Metrics, observer: Observer, synced: Callable[[], Mapping[str, bool]], state: Callable[[], ClusterState]) -> None:
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
    metrics.labelled(lambda: by_claim(state()))


def by_claim(state: ClusterState) -> Iterable[Labelled]:
    """Nothing where no driver publishes devices."""
    found = claim_devices(state).by_driver().items()
    devices = [((driver, word), float(many)) for driver, one in found for word, many in
               (("allocated", one.allocated), ("free", one.free), ("unavailable", one.devices - one.allocated - one.free))]  # fmt: skip
    wholes = [((driver, word), float(many)) for driver, one in found for word, many in (("free", one.free_wholes), ("other", one.wholes - one.free_wholes))]
    yield Labelled("claim_devices", CLAIM_DEVICES, ("driver", "state"), devices)
    yield Labelled("claim_whole_devices", WHOLES, ("driver", "state"), wholes)
