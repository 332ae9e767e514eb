"""KS-334: the kubelet's own arithmetic of quantities and requests."""

from __future__ import annotations

import pytest

from restow.kubesim.amounts import amount_of, pod_requests
from restow.kubesim.podstate import duration_of


@pytest.mark.parametrize(
    ("resource", "text", "expected"),
    [
        ("cpu", "1", 1000), ("cpu", "250m", 250), ("cpu", "0.1", 100), ("cpu", "100n", 1), ("cpu", "1.5k", 1_500_000),
        ("memory", "1Gi", 1 << 30), ("memory", "1.5Ki", 1536), ("memory", "1e3", 1000), ("memory", "100m", 1),
        ("memory", "1G", 10**9), ("memory", "2E", 2 * 10**18), ("memory", "2Ei", 2 << 60), ("pods", 110, 110),
    ],
)  # fmt: skip
def test_quantities_are_exact_and_round_up(resource, text, expected):
    """KS-334"""
    assert amount_of(resource, text) == expected


@pytest.mark.parametrize("text", ["", "1KB", "abc", "--1", "1e", "1e999"])
def test_what_is_not_a_quantity_is_refused_with_examples(text):
    """KS-334"""
    with pytest.raises(ValueError, match="quantity"):
        amount_of("cpu", text)


def test_limits_stand_in_for_missing_requests():
    """KS-334"""
    container = {"resources": {"limits": {"cpu": "2", "memory": "1Ki"}, "requests": {"cpu": "1"}}}
    assert pod_requests({"containers": [container]}) == {"cpu": 1000, "memory": 1024, "pods": 1}


def test_pod_level_resources_replace_the_sum():
    """KS-334"""
    container = {"resources": {"requests": {"cpu": "1", "memory": "1Ki"}}}
    spec = {"containers": [container, container], "resources": {"requests": {"cpu": "3"}}}
    assert pod_requests(spec) == {"cpu": 3000, "memory": 2048, "pods": 1}


@pytest.mark.parametrize(
    ("text", "seconds"), [("1500ms", 1.5), ("2s", 2.0), ("1m30s", 90.0), ("0.5h", 1800.0)]
)
def test_durations_are_read_as_go_writes_them(text, seconds):
    """KS-325"""
    assert duration_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "1x", "soon"])
def test_what_is_not_a_duration_is_refused_with_examples(text):
    """KS-325"""
    with pytest.raises(ValueError, match="duration"):
        duration_of(text)
