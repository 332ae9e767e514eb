"""The plugin's arguments: what is allowed (RULES 000-4)."""

from restow.domain.config import DefragmentationArgs
from restow.domain.resources import canonical_resource

THRESHOLDS = ("lowThresholds", "defragmentThresholds", "protectionThresholds")
"""From the lowest to the highest."""


class ArgsError(ValueError):
    """Arguments that make no sense. Names the path, its value and what is allowed."""


def threshold(args: DefragmentationArgs, name: str) -> int:
    """Percent, of the one resource that classifies. Raises ArgsError where it is missing or ambiguous."""
    wanted = canonical_resource(args.resourceType)
    found = {key: value for key, value in getattr(args, name).items() if canonical_resource(key) == wanted}
    if len(found) != 1:
        what = "is missing" if not found else "is given as " + ", ".join(sorted(found))
        raise ArgsError(f"{name}[{args.resourceType!r}]: {what}; allowed: one percentage of resourceType, 0 to 100")
    return next(iter(found.values()))


def check(args: DefragmentationArgs) -> None:
    """Raises ArgsError."""
    if not args.resourceType:
        raise ArgsError("resourceType: ''; allowed: a resource such as cpu, memory or nvidia.com/gpu")
    for name in THRESHOLDS:
        for resource, value in getattr(args, name).items():
            if not 0 <= value <= 100:
                raise ArgsError(f"{name}[{resource!r}]: {value}; allowed: 0 to 100 (percent)")
    low, defragment, protection = (threshold(args, name) for name in THRESHOLDS)
    if low > defragment:
        raise ArgsError(f"lowThresholds[{args.resourceType!r}]: {low}; allowed: at most defragmentThresholds, {defragment}")
    if defragment > protection:
        raise ArgsError(
            f"defragmentThresholds[{args.resourceType!r}]: {defragment}; allowed: at most protectionThresholds, {protection}"
        )
    if args.numberOfNodes < 0:
        raise ArgsError(f"numberOfNodes: {args.numberOfNodes}; allowed: 0 or more")
    if args.coolDownTime < 0:
        raise ArgsError(f"coolDownTime: {args.coolDownTime}; allowed: 0 or more (seconds)")
    names = args.evictableNamespaces
    if names is not None and names.include and names.exclude:
        raise ArgsError("evictableNamespaces: has include and exclude; allowed: one of them")
