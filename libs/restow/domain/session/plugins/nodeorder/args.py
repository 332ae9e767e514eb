"""The plugin's arguments: the weight of each score."""

import msgspec

from restow.domain.session import args


def _weight(name: str, default: int) -> int:
    return msgspec.field(name=name + ".weight", default=default)  # type: ignore[no-any-return]


class Args(args.Args, frozen=True):
    """Each score is 0 to 10 000 and counts so many times; 0 for never. The defaults are Volcano's."""

    node_affinity: int = _weight("nodeaffinity", 2)
    pod_affinity: int = _weight("podaffinity", 2)
    least_requested: int = _weight("leastrequested", 1)
    most_requested: int = _weight("mostrequested", 0)
    balanced_resource: int = _weight("balancedresource", 1)
    taint_toleration: int = _weight("tainttoleration", 3)
    image_locality: int = _weight("imagelocality", 1)
    pod_topology_spread: int = _weight("podtopologyspread", 2)

    def check(self) -> str:
        return args.weights_wrong(msgspec.to_builtins(self))
