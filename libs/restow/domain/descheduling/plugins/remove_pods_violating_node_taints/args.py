"""The arguments: which taints count, on which pods."""

from restow.contracts.values import Taint
from restow.domain.descheduling.subjects import PodArgs


class Args(PodArgs, frozen=True):
    """Taints are named by `key` or by `key=value`; of the two lists at most one. Taints of effect NoSchedule count, and with
    `includePreferNoSchedule` those of effect PreferNoSchedule."""

    include_prefer_no_schedule: bool = False
    excluded_taints: tuple[str, ...] = ()
    included_taints: tuple[str, ...] = ()

    def check(self) -> str:
        if self.excluded_taints and self.included_taints:
            return "includedTaints: excludedTaints is set, too; allowed: one of them"
        return super().check()

    def counts(self, taint: Taint) -> bool:
        if taint.effect != "NoSchedule" and not (self.include_prefer_no_schedule and taint.effect == "PreferNoSchedule"):
            return False
        names = (taint.key, f"{taint.key}={taint.value}" if taint.value else taint.key)
        if any(name in self.excluded_taints for name in names):
            return False
        return not self.included_taints or any(name in self.included_taints for name in names)
