"""The plugin's arguments: what is allowed (RULES 000-4)."""

from restow.contracts.values import DeviceRequest
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.costs import FLOOR
from restow.domain.defragmentation.prices import MOST as MOST_PRICE
from restow.domain.defragmentation.prices import micros
from restow.domain.policy_args import LabelSelector, Requirement
from restow.domain.quantity import QuantityError, canonical
from restow.domain.resources import (
    GPU_MILLI,
    GPU_NAMES,
    DeviceError,
    canonical_resource,
    device_request,
    in_columns,
)

THRESHOLDS = ("lowThresholds", "defragmentThresholds", "protectionThresholds")
"""From the lowest to the highest."""
KINDS = ("age", "budget", "gang", "localStorage", "move", "preferences", "priority", "restarts", "work")
"""What a move costs (`costs.Costs`)."""
MOST_COST, MOST_GAIN, MOST_STEPS = 1_000_000, 1_000_000, 10_000_000
MOST_HOURS = 8_766
LONGEST_UNIT = 32
"""Characters: each plan of the log says it, and each line of a table."""


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


def optional_threshold(args: DefragmentationArgs, name: str) -> int | None:
    """The same, None where it is missing: the optimizing planner needs none."""
    try:
        return threshold(args, name)
    except ArgsError:
        return None


def capacity_of(said: dict[str, str]) -> tuple[dict[str, int], DeviceRequest | None]:
    """What `capacity` asks of a node, by column, and of its devices. Raises ArgsError."""
    whole: dict[str, int] = {}
    try:
        for name, amount in said.items():
            whole[name] = canonical(name, amount)
            if whole[name] <= 0:
                raise ArgsError(f"capacity[{name!r}]: {amount}; allowed: more than 0")
        devices = device_request({name: amount for name, amount in whole.items() if name in GPU_NAMES})
    except (QuantityError, DeviceError) as error:
        raise ArgsError(f"capacity: {error}") from None
    return in_columns(whole, devices.count * devices.milli if devices is not None else 0), devices


def selector(args: DefragmentationArgs) -> LabelSelector | None:
    """`labelSelector` as other plugins have theirs."""
    said = args.labelSelector
    if said is None:
        return None
    expressions = tuple(Requirement(key=e.key, operator=e.operator, values=e.values) for e in said.match_expressions)
    return LabelSelector(match_labels=said.match_labels, match_expressions=expressions)


def check(args: DefragmentationArgs) -> None:
    """Raises ArgsError."""
    _check_search(args)
    if not args.resourceType:
        raise ArgsError("resourceType: ''; allowed: a resource such as cpu, memory or nvidia.com/gpu")
    for name in THRESHOLDS:
        for resource, value in getattr(args, name).items():
            if not 0 <= value <= 100:
                raise ArgsError(f"{name}[{resource!r}]: {value}; allowed: 0 to 100 (percent)")
    names = args.evictableNamespaces
    if names is not None and names.include and names.exclude:
        raise ArgsError("evictableNamespaces: has include and exclude; allowed: one of them")
    if (asked := selector(args)) is not None and (why := asked.check()):
        raise ArgsError(f"labelSelector.{why}")
    if args.numberOfNodes < 0:
        raise ArgsError(f"numberOfNodes: {args.numberOfNodes}; allowed: 0 or more")
    if args.coolDownTime < 0:
        raise ArgsError(f"coolDownTime: {args.coolDownTime}; allowed: 0 or more (seconds)")
    if args.planner in ("optimizing", "claims"):
        _check_protection(args)
        return
    low, defragment, protection = (threshold(args, name) for name in THRESHOLDS)
    if low > defragment:
        raise ArgsError(f"lowThresholds[{args.resourceType!r}]: {low}; allowed: at most defragmentThresholds, {defragment}")
    if defragment > protection:
        raise ArgsError(
            f"defragmentThresholds[{args.resourceType!r}]: {defragment}; allowed: at most protectionThresholds, {protection}"
        )


def _check_search(args: DefragmentationArgs) -> None:
    """What is said to the optimizing planner, whether it is configured or not."""
    if args.objective == "capacity" and not args.capacity:
        raise ArgsError("capacity: {}; allowed with objective capacity: at least one resource, such as {nvidia.com/gpu: 8}")
    if args.capacity:
        capacity_of(args.capacity)
        if args.objective != "capacity":
            raise ArgsError(f"capacity: {args.capacity}; allowed: only with objective capacity, not with {args.objective}")
    for kind, cost in args.costs.items():
        if kind not in KINDS:
            raise ArgsError(f"costs[{kind!r}]: unknown; allowed: {', '.join(KINDS)}")
        if not (kind == FLOOR) <= cost <= MOST_COST:
            raise ArgsError(f"costs[{kind!r}]: {cost}; allowed: {int(kind == FLOOR)} to {MOST_COST} (thousandths of a GPU-hour, or of the unit of prices)")
    if not 0 <= args.minimumGain <= MOST_GAIN:
        raise ArgsError(f"minimumGain: {args.minimumGain}; allowed: 0 to {MOST_GAIN} (thousandths a move)")
    if not 1 <= args.searchSteps <= MOST_STEPS:
        raise ArgsError(f"searchSteps: {args.searchSteps}; allowed: 1 to {MOST_STEPS}")
    _check_value(args)
    if args.perDevice and canonical_resource(args.resourceType) != GPU_MILLI:
        raise ArgsError(f"perDevice: true; allowed: only where resourceType is a GPU, not {args.resourceType!r}")
    if args.planner == "optimizing" and args.perDevice:
        raise ArgsError("perDevice: true; allowed: only with planner greedy")
    if args.planner == "claims":
        _check_claims(args)
    if args.planner == "greedy" and args.wholeNodes:
        raise ArgsError("wholeNodes: true; allowed: only with planner optimizing")


def _check_claims(args: DefragmentationArgs) -> None:
    """It knows one thing to gain."""
    if args.objective != "devices":
        raise ArgsError(f"objective: {args.objective}; allowed with planner claims: devices")
    for name in ("costs", "wholeNodes", "perDevice", "demand"):
        if getattr(args, name):
            raise ArgsError(f"{name}: {getattr(args, name)}; allowed: not with planner claims")


def _check_value(args: DefragmentationArgs) -> None:
    if args.objective == "value" and args.planner != "optimizing":
        raise ArgsError(f"objective: value; allowed: only with planner optimizing, not with {args.planner}")
    if len(args.prices.unit) > LONGEST_UNIT or not args.prices.unit.isprintable():
        raise ArgsError(f"prices.unit: {args.prices.unit[:LONGEST_UNIT]!r}; allowed: up to {LONGEST_UNIT} printable characters, such as USD")
    for name, price in args.prices.perHour.items():
        if micros(str(price)) is None:
            raise ArgsError(f"prices.perHour[{name!r}]: {price}; allowed: a number of units per hour, 0 to {MOST_PRICE}")
    if not 1 <= args.horizonHours <= MOST_HOURS:
        raise ArgsError(f"horizonHours: {args.horizonHours}; allowed: 1 to {MOST_HOURS}")


def _check_protection(args: DefragmentationArgs) -> None:
    """One percentage at most is about the resource."""
    wanted = canonical_resource(args.resourceType)
    if len([key for key in args.protectionThresholds if canonical_resource(key) == wanted]) > 1:
        threshold(args, "protectionThresholds")
