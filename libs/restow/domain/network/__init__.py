"""How near nodes are to each other in the network: blocks of nodes, one inside the other (racks in zones, Volcano's HyperNodes), and which of them a
PodGroup's pods may be in."""

from restow.domain.network.blocks import Blocks, Labels, Tier

__all__ = ["Blocks", "Labels", "Tier"]
