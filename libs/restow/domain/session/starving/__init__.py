"""Jobs that have waited for too long (seed 002): since when who waits (`waiting_times`), which of their tasks do, and who comes before them
(`jobs`), which nodes are reserved for them (`reserved_nodes`, the rule that every action heeds), and how one gets its nodes (`search`)."""

from restow.domain.session.starving.reserved_nodes import RESERVED as RESERVED
from restow.domain.session.starving.reserved_nodes import Reserved as Reserved
from restow.domain.session.starving.reserved_nodes import sentence as sentence
