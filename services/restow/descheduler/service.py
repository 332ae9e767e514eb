"""descheduler: fragmentation, plans, and the saga of each migration; creates and deletes Reservations, evicts."""

from restow.contracts.ids import Millis
from restow.descheduler.api import routes
from restow.descheduler.auto_pause import Watch
from restow.descheduler.effects import executors
from restow.descheduler.follow import Followers
from restow.descheduler.landings import Landings
from restow.descheduler.metrics import DeschedulerMetrics
from restow.descheduler.node_leases import NodeLeases
from restow.descheduler.progress import Progress
from restow.descheduler.sampler import Sampler
from restow.descheduler.user_events import Told
from restow.domain.config import MigrationConfig
from restow.domain.migration import check_in, decider, open_hours, pause, search
from restow.domain.state import ClusterState
from restow.runtime.long_decisions import Heavy
from restow.runtime.policy_file import read
from restow.runtime.service import Context, Parts, Service, Shaping


def _note(state: ClusterState, now: Millis) -> str:
    return "; ".join(filter(None, (pause.said_with_its_end(state), open_hours.said(state.migration_config, now), search.note(state, now))))


HEAVY = Heavy(
    is_heavy=search.is_heavy,
    bounded=search.bounded,
    leave_out=search.leave_out,
    begin=search.begin,
    end=search.end,
    under_way=lambda state: state.search.plan,
    note=_note,
)


def service() -> Service:
    return Service(
        name="descheduler",
        family="migration",
        decider=decider,
        assemble=assemble,
        read_config=read,
        default_config=MigrationConfig(),
        fits=check_in,
        shape=lambda _: Shaping(heavy=HEAVY),
    )


def assemble(context: Context) -> Parts:
    followers = Followers(context)
    progress = Progress(context, (DeschedulerMetrics(context), Told(context.recorder)))
    sampler, landings = Sampler(context), Landings(context)
    return Parts(
        executors=executors(context, landings),
        routes=routes(context, followers, sampler),
        tasks=[followers.run(), progress.run(), sampler.run(), *Watch(context).tasks(), NodeLeases(context).run()],
    )
