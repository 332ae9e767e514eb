"""What is measured lags behind: it is an average of some time before. What plans have moved since then it does not show yet, so that the same
node would give away too much, or take too much, until it does."""

from restow.contracts.ids import Millis, NodeName
from restow.domain.records import FINAL, Step
from restow.domain.state import ClusterState

WINDOW = Millis(60_000)
"""What metrics.k8s.io averages over (15 to 60 seconds, as metrics-server is set up), and at least what a query does."""


def unsettled(state: ClusterState, since: Millis) -> frozenset[NodeName]:
    """Nodes that pods are planned to leave or to go to, or have left or gone to after `since`."""
    found: set[str] = set()
    for migration in state.migrations.values():
        # Of what was rolled back nothing has moved.
        moved = migration.step is not Step.FAILED and migration.since > since
        if moved or migration.step not in FINAL:
            found.update((migration.move.source, migration.move.target))
    return frozenset(NodeName(name) for name in found if name)
