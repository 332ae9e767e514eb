"""A smaller cluster of the same kind as the openb trace: its node shapes in their proportions, its most popular pod shapes.

The figures are counts taken from openb's lists (cluster-trace-gpu-v2023). Of its pod lists it is the one with half of the GPUs in jobs of several
(`openb_pod_list_multigpu50`), for these are who waits in a fragmented cluster: the shapes below cover nine tenths of its pods.
"""

import random

from restow.cli.demo.scenario import MIB, DemoNode, Scenario, Workload

NODE_SHAPES = (
    ((96_000, 393_216, 8, "G2"), 549),
    ((104_000, 524_288, 2, "T4"), 387),
    ((16_000, 122_880, 2, "P100"), 107),
    ((128_000, 786_432, 8, "G3"), 39),
    ((32_000, 131_072, 4, "V100M16"), 28),
    ((64_000, 262_144, 2, "P100"), 22),
    ((96_000, 786_432, 8, "V100M32"), 21),
    ((8_000, 32_768, 1, "V100M16"), 19),
    ((96_000, 393_216, 4, "T4"), 17),
    ((48_000, 376_832, 4, "V100M32"), 9),
    ((64_000, 262_144, 8, "V100M16"), 7),
)
"""((cpu milli, memory MiB, GPUs, model), number of nodes)."""

POD_SHAPES = (
    ((3_152, 5_600, 1, 810), 1047),
    ((11_300, 49_152, 1, 1000), 857),
    ((11_400, 48_128, 1, 1000), 534),
    ((3_152, 5_600, 1, 1000), 470),
    ((11_908, 47_104, 1, 470), 388),
    ((12_500, 57_344, 0, 0), 364),
    ((8_000, 30_517, 1, 470), 360),
    ((32_000, 49_152, 0, 0), 284),
    ((18_708, 64_512, 1, 1000), 255),
    ((11_908, 47_104, 1, 650), 237),
    ((64_200, 263_168, 8, 1000), 229),
    ((88_000, 327_680, 8, 1000), 216),
    ((9_810, 41_560, 1, 1000), 195),
    ((8_000, 30_517, 0, 0), 163),
    ((12_000, 24_576, 1, 1000), 158),
    ((15_700, 58_368, 1, 1000), 158),
    ((11_908, 47_104, 1, 1000), 153),
    ((15_400, 51_200, 0, 0), 120),
    ((32_200, 132_096, 4, 1000), 112),
    ((4_000, 22_888, 1, 320), 111),
    ((16_000, 32_768, 1, 1000), 108),
    ((4_000, 24_576, 1, 1000), 104),
    ((8_000, 16_384, 1, 1000), 104),
    ((12_000, 16_384, 1, 1000), 99),
    ((16_200, 66_560, 2, 1000), 97),
    ((16_500, 51_200, 0, 0), 95),
    ((14_200, 58_368, 1, 1000), 93),
    ((4_000, 30_517, 1, 230), 84),
    ((24_200, 93_184, 1, 1000), 84),
    ((4_000, 15_258, 1, 320), 78),
    ((3_152, 5_600, 1, 590), 75),
    ((4_152, 10_600, 1, 550), 72),
    ((8_000, 30_517, 1, 320), 72),
    ((11_400, 77_824, 1, 1000), 65),
    ((8_000, 32_768, 1, 1000), 55),
    ((60_200, 320_512, 4, 1000), 54),
    ((4_000, 15_258, 1, 160), 53),
    ((6_000, 6_144, 1, 460), 51),
    ((11_900, 77_824, 1, 1000), 51),
    ((30_200, 160_768, 2, 1000), 46),
    ((4_152, 10_600, 1, 370), 45),
    ((12_000, 15_360, 1, 1000), 44),
    ((4_000, 30_517, 1, 320), 43),
    ((64_000, 262_144, 8, 1000), 42),
    ((8_200, 33_792, 1, 1000), 41),
)
"""((cpu milli, memory MiB, GPUs, milli of each), number of pods)."""


def generate(nodes: int = 120, seed: int = 42, *, shares: bool = True) -> Scenario:
    """`nodes` nodes and pods that ask for 130 % of their GPUs; lifetimes are drawn at random. Equal seeds, equal play. `shares`: whether some ask for
    a part of a GPU."""
    rng = random.Random(seed)
    shapes = _proportional(nodes)
    wanted = [(shape, count) for shape, count in POD_SHAPES if shares or shape[3] in (0, 1000)]
    cluster = tuple(DemoNode(f"node-{i:04d}", c, m * MIB, g, model) for i, (c, m, g, model) in enumerate(shapes))
    total = sum(n.gpus for n in cluster) * 1000
    workloads: list[Workload] = []
    asked = 0
    while asked * 100 < 130 * total:
        (cpu, memory, gpus, milli) = rng.choices([s for s, _ in wanted], [n for _, n in wanted])[0]
        now = len(workloads)
        workloads.append(
            Workload(f"job-{now:05d}", cpu, memory * MIB, gpus, milli, (), now, now + int(rng.expovariate(1 / (nodes * 5))))
        )
        asked += gpus * milli
    return Scenario(f"generated ({nodes} nodes, seed {seed})", cluster, tuple(workloads))


def _proportional(nodes: int) -> list[tuple[int, int, int, str]]:
    """Largest remainders: every count is its share rounded down or up."""
    whole = sum(n for _, n in NODE_SHAPES)
    counts = [nodes * n // whole for _, n in NODE_SHAPES]
    by_remainder = sorted(range(len(counts)), key=lambda i: -(nodes * NODE_SHAPES[i][1] % whole))
    for i in by_remainder[: nodes - sum(counts)]:
        counts[i] += 1
    return [shape for (shape, _), count in zip(NODE_SHAPES, counts, strict=True) for _ in range(count)]
