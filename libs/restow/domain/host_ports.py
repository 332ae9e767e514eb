"""Host ports: which of them cannot both be on one node, as kube-scheduler's NodePorts says it."""

from restow.contracts.values import HostPort, PodShape

ANY_ADDRESS = "0.0.0.0"


def host_ports(shape: PodShape) -> tuple[HostPort, ...]:
    """Each once, in order, with what the API takes for granted."""
    return tuple(HostPort(*one) for one in sorted({(p.port, p.protocol or "TCP", p.ip or ANY_ADDRESS) for p in shape.host_ports if p.port > 0}))


def met_by(port: HostPort) -> tuple[str, ...]:
    """The addresses with which another one of that number and protocol is in its way; "" for any. 0.0.0.0 is in conflict with every address."""
    return ("",) if port.ip == ANY_ADDRESS else (ANY_ADDRESS, port.ip)


def meet(one: HostPort, other: HostPort) -> bool:
    return (one.protocol, one.port) == (other.protocol, other.port) and any(address in ("", other.ip) for address in met_by(one))
