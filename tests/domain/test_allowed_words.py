"""An error of a configuration says which words are allowed."""

from typing import Literal

import msgspec
import pytest

from restow.domain import config
from restow.domain.allowed_words import allowed_words


class Inner(msgspec.Struct, rename="camel"):
    mode: Literal["on", "off"] | None = None
    how_often: int | Literal["never"] = 0


class Outer(msgspec.Struct):
    one: Inner
    some: tuple[Inner, ...] = ()
    named: dict[str, Inner] = msgspec.field(default_factory=dict)
    text: str = ""


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (".one.mode", ["off", "on"]), (".some[3].mode", ["off", "on"]), (".named[...].mode", ["off", "on"]), (".one.howOften", ["never"]),
        (".text", []), (".one", []), (".none.mode", []), ("", []), (".some.mode", []),
    ],
)  # fmt: skip
def test_the_words_are_those_of_the_field_that_the_path_leads_to(where, words):
    assert sorted(allowed_words(Outer, where)) == words


def test_they_are_what_msgspec_takes():
    for word in (words := allowed_words(config.DefragmentationArgs, ".objective")):
        msgspec.convert({"objective": word}, config.DefragmentationArgs)
    assert "value" in words
