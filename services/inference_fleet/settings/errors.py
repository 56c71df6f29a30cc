"""What a wrong setting is told: the variable, the value and what is allowed."""

from __future__ import annotations

_SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "KEY")


class SettingsError(ValueError):
    """A setting that cannot be used; the text names variable, value and what is allowed, and hides secrets."""

    def __init__(self, variable: str, value: object, allowed: str) -> None:
        """`variable` as in the environment, `value` as given, `allowed` in words a person can act on."""
        self.variable = variable
        shown = "***" if value and any(word in variable for word in _SECRET_WORDS) else value
        super().__init__(f"{variable}={shown}: must be {allowed}")
