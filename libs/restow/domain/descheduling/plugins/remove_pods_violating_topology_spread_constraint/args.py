"""The arguments: which constraints are to hold while pods run."""

from restow.domain.descheduling.subjects import PodArgs

HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"


class Args(PodArgs, frozen=True):
    """`constraints`: by their whenUnsatisfiable. `topologyBalanceNodeFit`: only pods go that some node of a domain with too
    few would take. All rules of the scheduler count there, other spread constraints too; without it pods go that may have to wait
    for new nodes, and `nodeFit` of DefaultEvictor does not ask about topology spread."""

    constraints: tuple[str, ...] = (HARD,)
    topology_balance_node_fit: bool = True

    def check(self) -> str:
        for i, constraint in enumerate(self.constraints):
            if constraint not in (HARD, SOFT):
                return f"constraints[{i}]: {constraint!r}; allowed: {HARD}, {SOFT}"
        return super().check()
