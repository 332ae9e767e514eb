"""Plugin `conformance`: what the cluster itself needs is never a victim: kube-system. (Critical priorities are nobody's
victims with the plugin or without, `session/guard.py`.)"""

from restow.contracts.ids import PodUid
from restow.domain.protection import Allowance
from restow.domain.session.args import NoArgs as Args
from restow.domain.session.session import Session

NAMESPACE = "kube-system"


def open(session: Session, args: Args) -> None:
    pods = session.state.pods

    def keeps(uid: PodUid) -> list[Allowance]:
        return [(("namespace", NAMESPACE), 0)] if pods[uid].fact.namespace == NAMESPACE else []

    session.extensions.veto("protects", keeps)
