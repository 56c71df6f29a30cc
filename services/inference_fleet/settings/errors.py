"""What a wrong setting is told: the variable, the value, what is allowed, and what to do."""

from __future__ import annotations

# in a name; a variable that ends in _FILE holds a path, which is shown
_SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "KEY")


class SettingsError(ValueError):
    """A setting that cannot be used; the text names variable, value, what is allowed and a remedy, and hides secrets."""

    def __init__(self, variable: str, value: object, allowed: str, *, remedy: str = "") -> None:
        """`variable` as in the environment, `value` as given, `allowed` in words a person can act on.

        `remedy` is named where the usual one, the allowed value or the default, would not help.
        """
        self.variable = variable
        hidden = not variable.endswith("_FILE") and any(word in variable for word in _SECRET_WORDS)
        shown = "***" if value and hidden else value
        remedy = remedy or f"set {variable} to that, or unset it for its default"
        super().__init__(f"{variable}={shown}: must be {allowed}; try: {remedy}")
