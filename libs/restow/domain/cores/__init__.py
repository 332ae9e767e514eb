"""CPUs of their own for pods of Koordinator's QoS classes LSE and LSR: what a node has, who has which, and who gets which."""

from restow.domain.cores.choose import FULL as FULL
from restow.domain.cores.choose import SPREAD as SPREAD
from restow.domain.cores.choose import Topology as Topology
from restow.domain.cores.choose import choose as choose
from restow.domain.cores.cpuset import cpuset as cpuset
from restow.domain.cores.index import REASONS as REASONS
from restow.domain.cores.index import Cores as Cores
from restow.domain.cores.index import EmptyCores as EmptyCores
