"""SQL put together from named fragments, so a rule that two statements share is written once."""

from __future__ import annotations

from string import Template


def statement(text: str, **fragments: str) -> str:
    """`text` with every `$name` replaced by that fragment; a name that is missing is a `KeyError` at import.

    Fragments are constants of this code. Values never pass through here: they are `%(name)s` parameters.
    """
    return Template(text).substitute(fragments)
