"""Percentages of nodes against thresholds, without a rounding error."""

from fractions import Fraction

import pytest

from restow.domain.descheduling.utilization.thresholds import (
    SCALE,
    around_mean,
    first_over,
    fixed,
    is_under,
    levels,
)


def percent(**parts):
    return {name: Fraction(part) for name, part in parts.items()}


@pytest.mark.parametrize(
    ("used", "capacity", "threshold", "above"),
    [
        (3, 10, "30", False),
        (1, 3, "33.333333", True),
        (1, 3, "33.34", False),
        (333, 1000, "33.3", False),
        (3331, 10_000, "33.3", True),
        (29, 100, "29", False),
        (10**18 + 1, 10**18, "100", True),
        (0, 10, "0", False),
        (5, 0, "0", False),
    ],
)
def test_above_a_threshold_is_what_really_is(used, capacity, threshold, above):
    found = levels({"cpu": used}, {"cpu": capacity})
    assert (first_over(found, fixed(percent(cpu=threshold))) == "cpu") is above
    assert is_under(found, fixed(percent(cpu=threshold))) is not above


def test_a_resource_that_the_node_does_not_have_is_none():
    assert levels({"gpu": 1}, {}) == {}
    assert is_under({}, fixed(percent(gpu=0)))
    assert first_over({}, fixed(percent(gpu=0))) == ""


def test_what_a_bound_leaves_of_a_node_is_rounded_down():
    (bound,) = fixed(percent(cpu="33.3")).values()
    assert bound.share(10_001) == 3330
    assert bound.percent == Fraction("33.3")


def test_around_the_mean_of_those_that_have_the_resource():
    nodes = [{"cpu": 10 * SCALE}, {"cpu": 20 * SCALE, "gpu": 50 * SCALE}, {"cpu": 40 * SCALE}]
    bounds = around_mean(nodes, percent(cpu="1.5", gpu="60", none="1"), 1)
    assert {name: bound.percent for name, bound in bounds.items()} == {"cpu": Fraction(70, 3) + Fraction("1.5"), "gpu": 100}
    assert around_mean(nodes, percent(gpu="60"), -1)["gpu"].percent == 0
