"""garbage_collector: what is due; snapshots, archive, truncation."""

from restow.domain.config import GcConfig
from restow.domain.gc import decider
from restow.garbage_collector.conf import read
from restow.garbage_collector.effects import executors
from restow.garbage_collector.leftovers import Leftovers
from restow.garbage_collector.metrics import CollectorMetrics
from restow.garbage_collector.node_marks import MarksOfNobody
from restow.garbage_collector.snapshot_keeper import Keeper
from restow.runtime.service import Context, Parts, Service


def service() -> Service:
    return Service(
        name="garbage_collector",
        family="gc",
        decider=decider,
        assemble=assemble,
        read_config=read,
        default_config=GcConfig(),
        stores_snapshots=True,
    )


def assemble(context: Context) -> Parts:
    keeper = Keeper(context)
    CollectorMetrics(context, keeper.failing, keeper.damaged)
    return Parts(executors=executors(context), tasks=[keeper.run(), Leftovers(context).run(), MarksOfNobody(context).run()])
