"""What a wait is waiting for: a predicate or a value, with the traps that make a check trivially true closed.

| matcher | matches | closes the trap that |
|---|---|---|
| any value | what equals it | "not healthy" is satisfied by an error or by nothing |
| a function of one argument | where it returns `True` | (its name is the text of the failure) |
| `present_and_empty("address")` | all keys there and empty | a renamed key reads as empty |
| `one_of("a", "b")` | a member of a closed set | a typo in one place is green |
| `containing("no route")` | text or collection that has it | |
| `is_not(value)` | any *seen* value but this one | (an error is never a value, so never a match) |
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

_LONGEST_TEXT = 400


@dataclass(frozen=True)
class Matcher:
    """A predicate with the words that describe it in a failure."""

    text: str
    accepts: Callable[[Any], bool]

    def __call__(self, value: object) -> bool:
        """Whether the value is the awaited one."""
        return self.accepts(value)


def matcher_of(awaited: object) -> Matcher:
    """A callable is asked, anything else is compared for equality."""
    if isinstance(awaited, Matcher):
        return awaited
    if callable(awaited):
        return Matcher(_name_of(awaited), _strictly(awaited))
    return Matcher(f"== {shown(awaited)}", lambda value: bool(value == awaited))


def present_and_empty(*keys: str) -> Matcher:
    """Every key is there and holds an empty string, list or mapping: absent is not empty."""
    if not keys:
        raise ValueError("keys=(): nothing to look at; try: present_and_empty('address')")

    def accepts(value: object) -> bool:
        if not isinstance(value, Mapping):
            return False
        return all(key in value and value[key] is not None and not value[key] for key in keys)

    return Matcher(f"has {', '.join(keys)} present and empty", accepts)


def one_of(*values: object) -> Matcher:
    """A member of a closed set."""
    if not values:
        raise ValueError("values=(): nothing would ever match; try: one_of('connected', 'reconnecting')")
    return Matcher(f"one of {', '.join(shown(value) for value in values)}", lambda value: value in values)


def containing(part: object) -> Matcher:
    """A text or a collection that has the part in it."""
    if part == "":
        raise ValueError("part='': every text contains it; try: containing('no route')")

    def accepts(value: object) -> bool:
        if isinstance(value, str):
            return isinstance(part, str) and part in value
        return isinstance(value, Container) and part in value

    return Matcher(f"contains {shown(part)}", accepts)


def is_not(value: object) -> Matcher:
    """Anything that was really seen and differs; an error of the probe does not count as seen."""
    return Matcher(f"!= {shown(value)}", lambda seen: bool(seen != value))


def probe_of(probe: object) -> Callable[[], Any]:
    """The probe, when it can be called without arguments; an index-taking method needs a closure around it."""
    if not callable(probe):
        raise TypeError(f"probe={shown(probe)}: already a value, it would never change; try: lambda: ...")
    try:
        signature = inspect.signature(probe)
    except (TypeError, ValueError):  # some builtins have no signature; they are taken at their word
        return probe
    try:
        signature.bind()
    except TypeError as error:
        name = _name_of(probe)
        raise TypeError(f"probe={name}: {error}; try: lambda: {name}(...)") from None
    return probe


def shown(value: object) -> str:
    """A bounded representation; an object whose `repr` fails is named by its type."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a broken repr must not hide the wait's own verdict
        text = f"<{type(value).__name__}, its repr raised {type(error).__name__}>"
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[: _LONGEST_TEXT // 2]} ...({len(text)} characters)... {text[-_LONGEST_TEXT // 4 :]}"


def _strictly(predicate: Callable[..., Any]) -> Callable[[Any], bool]:
    """A predicate that answers with something else than a truth value is a mistake, not a match."""

    def accepts(value: object) -> bool:
        answer = predicate(value)
        if isinstance(answer, bool):
            return answer
        if type(answer).__name__ in {"bool_", "bool"}:
            return bool(answer)
        raise TypeError(
            f"matcher {_name_of(predicate)} returned {shown(answer)}, which is not True or False;"
            " try: a comparison, or the awaited value itself"
        )

    return accepts


def _name_of(function: object) -> str:
    told = getattr(function, "name", None)
    if isinstance(told, str) and told:
        return f"{type(function).__name__} {told}"
    name = getattr(function, "__qualname__", None) or type(function).__name__
    code = getattr(function, "__code__", None)
    if "<lambda>" not in name or code is None:
        return str(name).replace("<locals>.", "")
    return f"the lambda at {code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno}"
