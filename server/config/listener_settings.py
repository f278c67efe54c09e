"""The settings of one listener: `listener.name.<listener>.<key>` if that is set, otherwise the plain key.

A mechanism may have its own settings: `listener.name.<listener>.<mechanism>.<key>`. Both names are in lower case.
Source: ListenerName.configPrefix, AbstractConfig.valuesWithPrefixOverride.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from .definitions import ConfigError, Value
from .tables import BROKER, LISTENER_PREFIX


class EffectiveSettings(Protocol):
    """The settings of a broker. Shape: `effective` has the texts of the set values."""

    effective: dict[str, str]

    def __getitem__(self, name: str) -> Value: ...


class ListenerSettings:
    """Typed settings, by their plain names (`ssl.client.auth`).

    Shape: always the values in effect, so changes at run time apply immediately. Errors: KeyError for a name that no
    table has.
    """

    def __init__(
        self, config: EffectiveSettings, listener: str, mechanism: str | None = None
    ) -> None:
        self.listener = listener
        self._config = config
        self._prefixes = [f"{LISTENER_PREFIX}{listener.lower()}."]
        if mechanism is not None:
            self._prefixes.insert(0, f"{self._prefixes[0]}{mechanism.lower()}.")

    def mechanism(self, name: str) -> ListenerSettings:
        """The settings of one of the listener's mechanisms, which fall back to the listener's and the plain ones."""
        return ListenerSettings(self._config, self.listener, name)

    def names(self, key: str) -> Iterator[str]:
        """The names under which `key` can be set here, in order of precedence."""
        for prefix in self._prefixes:
            yield prefix + key
        yield key

    def own(self, key: str) -> str | None:
        """The text set for exactly this listener (and mechanism), without fallback."""
        return self._config.effective.get(self._prefixes[0] + key)

    def name_in_use(self, key: str) -> str:
        """The name under which `key` is set here, for messages; the plain name if it is not set."""
        return next((name for name in self.names(key) if name in self._config.effective), key)

    def has(self, key: str) -> bool:
        """Whether `key` is set, here or for all listeners."""
        return any(name in self._config.effective for name in self.names(key))

    def __getitem__(self, key: str) -> Value:
        effective = self._config.effective
        for prefix in self._prefixes:
            text = effective.get(prefix + key)
            if text is not None:
                return BROKER[key].parse(text)
        return self._config[key]

    def get_int(self, key: str) -> int:
        """A whole number. Errors: TypeError if there is no value or another type."""
        value = self[key]
        if type(value) is not int:
            raise TypeError(f"{key} is {value!r}, not a whole number")
        return value

    def get_float(self, key: str) -> float:
        """A number that may have a fraction."""
        value = self[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{key} is {value!r}, not a number")
        return float(value)

    def get_bool(self, key: str) -> bool:
        """true or false."""
        value = self[key]
        if not isinstance(value, bool):
            raise TypeError(f"{key} is {value!r}, neither true nor false")
        return value

    def get_str(self, key: str) -> str:
        """A string, which must be set or have a default; never log that of a sensitive key."""
        value = self[key]
        if not isinstance(value, str):
            raise TypeError(f"{key} is not set to a string")
        return value

    def get_optional_str(self, key: str) -> str | None:
        """A string; None if it is not set and has no default."""
        return None if self[key] is None else self.get_str(key)

    def get_list(self, key: str) -> list[str]:
        """A list; empty if it is not set and has no default."""
        value = self[key]
        if value is None:
            return []
        if not isinstance(value, list):
            raise TypeError(f"{key} is not a list")
        return value

    def refusal(self, key: str, reason: str, allowed: str | None = None) -> ConfigError:
        """A ConfigError for the value of `key`, under the name that sets it; hides secrets."""
        name = self.name_in_use(key)
        text = self._config.effective.get(name, BROKER[key].default)
        shown = "[hidden]" if BROKER[key].sensitive and text is not None else text
        message = f"Invalid value {shown} for configuration {name}: {reason}"
        return ConfigError(message, name, shown, reason, allowed)
