"""ResourceQuotas → facts: only what of them is exceeded. How much is in use changes with every pod, and is nobody's business here: whoever
follows a pod that goes asks for what that leaves, so that it is refused only where more is in use than allowed (a quota that was lowered)."""

from restow.contracts import events as e
from restow.contracts.values import Expression
from restow.domain.quantity import QuantityError, nano
from restow.kube import wire_objects as w

OF_PODS = ("pods", "count/pods", "cpu", "memory", "ephemeral-storage")
PREFIXES = ("requests.", "limits.", "hugepages-")
OF_CLAIMS = "requests.storage"


def quota_fact(quota: w.Quota) -> e.QuotaObserved:
    meta, spec, status = quota.metadata, quota.spec or w.QuotaSpec(), quota.status or w.QuotaStatus()
    hard, used = status.hard or {}, status.used or {}
    exceeded = tuple(sorted(name for name, most in hard.items() if _of_pods(name) and name in used and _more(used[name], most)))
    if not exceeded:
        return e.QuotaObserved(meta.namespace, meta.name, meta.uid)
    scopes = [Expression(name, "Exists") for name in spec.scopes or ()]
    for one in (spec.scope_selector.match_expressions or ()) if spec.scope_selector is not None else ():
        scopes.append(Expression(one.scope_name, one.operator, tuple(one.values or ())))
    return e.QuotaObserved(meta.namespace, meta.name, meta.uid, exceeded, tuple(scopes))


def _of_pods(name: str) -> bool:
    return name in OF_PODS or (name.startswith(PREFIXES) and name != OF_CLAIMS)


def _more(used: w.Quantity, most: w.Quantity) -> bool:
    """What cannot be read is nothing that is known."""
    try:
        return nano(used) > nano(most)
    except QuantityError:
        return False
