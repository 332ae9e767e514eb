"""Quantities are Kubernetes' own: any legal text is read exactly, any other is refused with what is allowed."""

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.domain import quantity as q

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    **{s: Fraction(10 ** (3 * i)) for i, s in enumerate("kMGTPE", 1)},
    **{s + "i": Fraction(2 ** (10 * i)) for i, s in enumerate("KMGTPE", 1)},
}

digits = st.text("0123456789", min_size=1, max_size=15)
numbers = st.one_of(
    digits,
    st.builds("{}.{}".format, digits, digits),
    st.builds("{}.".format, digits),
    st.builds(".{}".format, digits),
)
exponents = st.builds(lambda e, n: (f"{e}{n}", Fraction(10) ** n), st.sampled_from("eE"), st.integers(-12, 12))
endings = st.one_of(st.sampled_from(sorted(SUFFIXES.items())), exponents)


def away_from_zero(value: Fraction) -> int:
    return -((-value.numerator) // value.denominator) if value >= 0 else value.numerator // value.denominator


def exactly(sign: str, number: str, factor: Fraction) -> Fraction:
    whole, _, part = number.partition(".")
    value = Fraction(int((whole + part) or "0"), 10 ** len(part)) * factor
    return -value if sign == "-" else value


@given(st.sampled_from(["", "+", "-"]), numbers, endings)
def test_any_legal_text_is_read_exactly_and_rounded_away_from_zero(sign, number, ending):
    text, value = sign + number + ending[0], exactly(sign, number, ending[1])
    # The oracle keeps nano as the finest step, as apimachinery does, before it rounds to the unit.
    nano = away_from_zero(value * 10**9)
    assert q.nano(text) == nano
    for read, unit in ((q.milli, 10**6), (q.units, 10**9)):
        expected = away_from_zero(Fraction(nano, unit))
        if abs(expected) < 2**63:
            assert read(text) == expected
        elif expected not in (-(2**63), 2**63):
            with pytest.raises(q.QuantityError, match="too large"):
                read(text)


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(["cpu", "memory", "hugepages-2Mi", "nvidia.com/gpu"]))
def test_what_is_written_is_read_back(amount, resource):
    assert q.canonical(resource, q.format_resource(resource, amount)) == amount


@given(st.text("0123456789.eEinumkKMGTP+- ", max_size=12))
def test_what_the_grammar_does_not_allow_is_refused(text):
    # apimachinery: signedNumber, then one suffix; stated here apart from the code under test.
    legal = re.fullmatch(
        r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?[0-9]+)?", text
    )
    if legal is None:
        with pytest.raises(q.QuantityError, match=r"allowed: "):
            q.nano(text)
    else:
        try:
            q.nano(text)
        except q.QuantityError as error:
            assert "too large" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("text", "milli", "units"),
    [
        ("1500m", 1500, 2),
        ("0.1", 100, 1),
        ("1n", 1, 1),
        ("-1n", -1, -1),
        ("0", 0, 0),
        ("0e99999999", 0, 0),
        ("1E", 10**21, 10**18),
        ("1E3", 10**6, 1000),
        ("1.5Gi", 1610612736000, 1610612736),
        ("1e-3", 1, 1),
        ("1e-99999999", 1, 1),
        ("+.5k", 500_000, 500),
        ("9223372036854775807", None, 2**63 - 1),
    ],
)
def test_known_values(text, milli, units):
    if milli is not None and milli < 2**63:
        assert q.milli(text) == milli
    assert q.units(text) == units


@pytest.mark.parametrize(("value", "milli"), [(2, 2000), (0.5, 500), (1e-7, 1), (0, 0), (-1, -1000)])
def test_numbers_of_json_are_quantities_too(value, milli):
    assert q.milli(value) == milli


@pytest.mark.parametrize("value", [True, float("nan"), float("inf"), None, [], "1e99999999", "8Ei", "1" * 200])
def test_what_is_no_quantity_is_refused_with_its_value(value):
    with pytest.raises(q.QuantityError, match=r"allowed: "):
        q.units(value)


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("memory", 500 << 20, "500Mi"),
        ("memory", 1000, "1k"),
        ("memory", 1024, "1Ki"),
        ("memory", 1025, "1025"),
        ("memory", 1 << 60, "1Ei"),
        ("memory", 0, "0"),
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("cpu", 2_000_000, "2k"),
        ("nvidia.com/gpu", 8, "8"),
        ("hugepages-2Mi", 4 << 21, "8Mi"),
        ("ephemeral-storage", -(3 << 30), "-3Gi"),
    ],
)
def test_canonical_strings(resource, amount, text):
    assert q.format_resource(resource, amount) == text


def test_a_sum_is_rounded_once():
    assert q.from_nano("cpu", q.nano("100u") + q.nano("100u")) == 1


@pytest.mark.parametrize(("resource", "asked", "said"), [("memory", "9Ei", "'10376293541461622784'"), ("cpu", "1e16", "'10000000000000000000m'")])
def test_a_sum_that_is_too_large_is_said_in_the_unit_of_its_resource(resource, asked, said):
    with pytest.raises(q.QuantityError, match=said):
        q.from_nano(resource, q.nano(asked))
