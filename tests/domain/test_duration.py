"""Durations are Go's: what a user may write as `ttl` is read, anything else is refused with what is allowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.domain import duration as d


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("600s", 600_000),
        ("1h30m", 5_400_000),
        ("24h", 86_400_000),
        ("1.5h", 5_400_000),
        ("0", 0),
        ("0s", 0),
        ("-2m", -120_000),
        ("+1ms", 1),
        (".5s", 500),
        ("1.s", 1000),
        ("1us", 1),
        ("1µs", 1),
        ("1h1m1s1ms1us1ns", 3_661_002),
    ],
)
def test_go_durations(text, milliseconds):
    assert d.milliseconds(text) == milliseconds


@pytest.mark.parametrize("text", ["", "5", "s", "-", "1d", "1h 30m", "h1", "1.2.3s", ".s", "1e3s", "9999999h", "1s" * 100, "9" * 5000 + "h", "0." + "9" * 5000 + "h"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(d.DurationError, match="allowed: "):
        d.milliseconds(text)


@given(st.integers(-(2**62) // 10**6, 2**62 // 10**6))
def test_what_is_written_is_read_back(milliseconds):
    assert d.milliseconds(d.format_milliseconds(milliseconds)) == milliseconds


@pytest.mark.parametrize(
    ("milliseconds", "text"), [(600_000, "10m0s"), (5_400_000, "1h30m0s"), (1_500, "1.5s"), (250, "250ms"), (0, "0s")]
)
def test_written_as_go_does(milliseconds, text):
    assert d.format_milliseconds(milliseconds) == text
