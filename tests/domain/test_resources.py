"""GPUs by any of their names are one column (RULES 004-5)."""

import pytest

from restow.contracts.values import DeviceRequest
from restow.domain import resources as r


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ({"cpu": 1000}, None),
        ({"nvidia.com/gpu": 0}, None),
        ({"nvidia.com/gpu": 4}, (4, 1000)),
        ({"koordinator.sh/gpu": 50}, (1, 500)),
        ({"koordinator.sh/gpu": 100}, (1, 1000)),
        ({"koordinator.sh/gpu": 200}, (2, 1000)),
        ({"koordinator.sh/gpu-core": 30, "koordinator.sh/gpu-memory-ratio": 60}, (1, 600)),
        ({"alibabacloud.com/gpu-milli": 460}, (1, 460)),
        ({"alibabacloud.com/gpu-milli": 1000, "alibabacloud.com/gpu-count": 8}, (8, 1000)),
        ({"alibabacloud.com/gpu-count": 2}, (2, 1000)),
        ({"nvidia.com/gpu": 2, "koordinator.sh/gpu": 200}, (2, 1000)),
    ],
)
def test_every_way_to_ask(amounts, expected):
    assert r.device_request(amounts) == (expected and DeviceRequest(*expected))


@pytest.mark.parametrize(
    "amounts",
    [
        {"koordinator.sh/gpu": 150},
        {"alibabacloud.com/gpu-milli": 1001},
        {"nvidia.com/gpu": 1, "koordinator.sh/gpu": 50},
        {"nvidia.com/gpu": 100_000},
    ],
)
def test_what_no_device_can_serve_is_refused(amounts):
    with pytest.raises(r.DeviceError, match="allowed: "):
        r.device_request(amounts)


def test_a_node_has_the_greatest_number_its_names_say():
    assert r.node_devices({"nvidia.com/gpu": 7, "koordinator.sh/gpu": 800, "alibabacloud.com/gpu-count": 2}) == 8


@pytest.mark.parametrize("name", sorted(r.GPU_NAMES))
def test_every_gpu_name_is_one_column(name):
    assert r.canonical_resource(name) == "restow.dev/gpu-milli"


def test_columns_have_one_order():
    assert r.ordered(["b", "pods", "a", "memory", "restow.dev/gpu-milli", "cpu"]) == (
        "cpu", "memory", "restow.dev/gpu-milli", "pods", "a", "b",
    )  # fmt: skip
