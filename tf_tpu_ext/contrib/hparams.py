"""`HParams`: named hyperparameters that keep their types."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any


class HParams:
    """A set of hyperparameters, available as attributes.

    Example:
        >>> hparams = HParams(learning_rate=0.1, units=[8, 4], name="model")
        >>> _ = hparams.parse("learning_rate=0.25,units=[16,8],name=other")
        >>> hparams.learning_rate, hparams.units, hparams.name
        (0.25, [16, 8], 'other')
    """

    def __init__(self, **kwargs: Any) -> None:
        """Creates hyperparameters with these names and values."""
        self._values: dict[str, Any] = {}
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Adds a hyperparameter.

        Raises:
            ValueError: The name is taken by a hyperparameter that is not None, or by a method.

        Example:
            >>> hparams = HParams()
            >>> hparams.add_hparam("rate", 0.5)
            >>> hparams.rate
            0.5
        """
        if self._values.get(name) is not None or hasattr(type(self), name):
            raise ValueError(
                f"add_hparam got the name {name!r}, which is taken, expected a new one. Use "
                "set_hparam to change a value."
            )
        self._values[name] = list(value) if isinstance(value, tuple) else value

    def set_hparam(self, name: str, value: Any) -> None:
        """Changes a hyperparameter.

        Raises:
            KeyError: There is no hyperparameter with that name.
            ValueError: The value does not have the same type as the current one.

        Example:
            >>> hparams = HParams(rate=0.5)
            >>> hparams.set_hparam("rate", 1)
            >>> hparams.rate
            1.0
        """
        self._values[name] = _like(name, self._get(name), value)

    def del_hparam(self, name: str) -> None:
        """Removes a hyperparameter if it exists.

        Example:
            >>> hparams = HParams(rate=0.5)
            >>> hparams.del_hparam("rate")
            >>> hparams.values()
            {}
        """
        self._values.pop(name, None)

    def parse(self, values: str) -> HParams:
        """Changes hyperparameters to the values in a string: `"rate=0.1,units=[8,4],units[1]=2"`.

        Returns:
            This object.

        Raises:
            ValueError: The string can't be parsed, or has an unknown name or a value of the wrong
                type.

        Example:
            >>> HParams(rate=0.5, units=[8, 4]).parse("rate=0.1,units[1]=2").values()
            {'rate': 0.1, 'units': [8, 2]}
        """
        known = {name: type(value) for name, value in self._values.items()}
        for name, value in parse_values(values, known).items():
            if isinstance(value, dict):
                changed = list(self._values[name])
                for index, element in value.items():
                    changed[index] = element
                value = changed
            self.set_hparam(name, value)
        return self

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Changes hyperparameters to the values in a dictionary and returns this object.

        Raises:
            KeyError: There is no hyperparameter with that name.
            ValueError: A value does not have the same type as the current one.

        Example:
            >>> HParams(rate=0.5).override_from_dict({"rate": 0.1}).rate
            0.1
        """
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json: str) -> HParams:
        """Changes hyperparameters to the values in a JSON object and returns this object.

        Raises:
            KeyError: There is no hyperparameter with that name.
            ValueError: The string is not JSON, or a value does not have the same type as the
                current one.

        Example:
            >>> HParams(rate=0.5).parse_json('{"rate": 0.1}').rate
            0.1
        """
        return self.override_from_dict(json.loads(values_json))

    def to_json(self, **kwargs: Any) -> str:
        """Returns the hyperparameters as JSON. Keyword arguments are passed to `json.dumps`.

        Example:
            >>> HParams(rate=0.5).to_json()
            '{"rate": 0.5}'
        """
        return json.dumps(self.values(), **kwargs)

    def values(self) -> dict[str, Any]:
        """Returns a dictionary of the hyperparameters.

        Example:
            >>> HParams(rate=0.5).values()
            {'rate': 0.5}
        """
        return dict(self._values)

    def get(self, key: str, default: Any = None) -> Any:
        """Returns a hyperparameter, or `default` if it does not exist.

        Example:
            >>> HParams(rate=0.5).get("decay", 0.0)
            0.0
        """
        return self._values.get(key, default)

    def keys(self) -> Iterable[str]:
        """Returns the names.

        Example:
            >>> sorted(HParams(rate=0.5, units=4).keys())
            ['rate', 'units']
        """
        return self._values.keys()

    def _get(self, name: str) -> Any:
        if name not in self._values:
            raise KeyError(
                f"There is no hyperparameter {name!r}, expected one of {sorted(self._values)}."
            )
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        """Returns a hyperparameter."""
        values = self.__dict__.get("_values", {})
        if name not in values:
            raise AttributeError(
                f"There is no hyperparameter {name!r}, expected one of {sorted(values)}."
            )
        return values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets a hyperparameter without checking its type."""
        if name in self.__dict__.get("_values", {}):
            self._values[name] = value
        else:
            super().__setattr__(name, value)

    def __contains__(self, name: str) -> bool:
        """Returns whether there is a hyperparameter with that name."""
        return name in self._values

    def __repr__(self) -> str:
        """Returns a string that lists the hyperparameters."""
        return f"HParams({', '.join(f'{k}={v!r}' for k, v in sorted(self._values.items()))})"


_ASSIGNMENT = re.compile(
    r"\s*(?P<name>[A-Za-z]\w*)\s*(\[\s*(?P<index>\d+)\s*\])?\s*=\s*"
    r"(?P<value>\[[^\]]*\]|\"[^\"]*\"|'[^']*'|[^,\[]*)\s*(,|$)"
)


def parse_values(
    values: str, type_map: Mapping[str, type], ignore_unknown: bool = False
) -> dict[str, Any]:
    """Parses a string such as `"name=value,name=[value,value],name[1]=value"`.

    Args:
        values: The string.
        type_map: The types by name. The elements of lists are parsed as Python literals.
        ignore_unknown: Whether to ignore names that are not in `type_map`.

    Returns:
        A dictionary of the values by name. For individual elements of a list, the value is a
        dictionary by index.

    Raises:
        ValueError: The string can't be parsed, or has an unknown name.

    Example:
        >>> parse_values("rate=0.5,units=[8,4]", {"rate": float, "units": list})
        {'rate': 0.5, 'units': [8, 4]}
    """
    found: dict[str, Any] = {}
    position = 0
    while position < len(values):
        match = _ASSIGNMENT.match(values, position)
        if match is None:
            raise ValueError(
                f"{values[position:]!r} can't be parsed as hyperparameters, expected "
                "'name=value,name=[value,value]'."
            )
        position = match.end()
        name, index, text = match["name"], match["index"], match["value"].strip()
        if name not in type_map:
            if ignore_unknown:
                continue
            raise ValueError(f"{name!r} is unknown, expected one of {sorted(type_map)}.")
        value = _read(name, text, type_map[name])
        if index is None:
            found[name] = value
        else:
            found.setdefault(name, {})[int(index)] = value
    return found


def _read(name: str, text: str, kind: type) -> Any:
    if text.startswith("["):
        return [_read(name, part.strip(), object) for part in text[1:-1].split(",") if part.strip()]
    if kind is str:
        return text.strip("\"'")
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return bool(value) if kind is bool else value


def _like(name: str, present: Any, value: Any) -> Any:
    """Returns `value` converted to the type of the current one."""
    if isinstance(present, list):
        elements = list(value) if isinstance(value, (list, tuple)) else [value]
        return [_like(name, present[0], each) for each in elements] if present else elements
    mixed = isinstance(value, bool) != isinstance(present, bool)
    if present is None or value is None or (isinstance(value, type(present)) and not mixed):
        return value
    kind = type(present)
    exact = kind in (int, float) and isinstance(value, (int, float)) and not isinstance(value, bool)
    if exact and kind(value) == value:
        return kind(value)
    raise ValueError(
        f"The hyperparameter {name!r} got {value!r} of type {type(value).__name__}, expected "
        f"{kind.__name__}, the type of {present!r}. Assign to the attribute to change the type."
    )
