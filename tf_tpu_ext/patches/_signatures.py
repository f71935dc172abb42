"""Compares the signatures of a function and of its replacement by a patch."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

_Kind = inspect.Parameter
_POSITIONAL = (_Kind.POSITIONAL_ONLY, _Kind.POSITIONAL_OR_KEYWORD)


def mismatch(
    found: Any, replacement: Callable[..., Any], uses: Sequence[str] = (), *, method: bool = False
) -> str | None:
    """Returns why a replacement does not take the same calls as `found`, or None if it does.

    The signature of the replacement is the one that the patch expects of `found`. Its `*args` and
    `**kwargs` match any parameters.

    Args:
        found: The function or class of TensorFlow.
        replacement: The function or class that replaces it.
        uses: Parameters that the replacement uses by name although its signature lacks them.
        method: Whether to ignore the name of the first parameter.
    """
    try:
        there = inspect.signature(found)
    except (TypeError, ValueError):
        # Not every Python can tell the parameters of its own functions.
        if callable(found) and getattr(found, "__module__", None) == "builtins":
            return None
        return f"expected a function with the parameters {_text(_own(replacement))}, got {found!r}"
    written = _own(replacement)
    missing = [name for name in uses if name not in there.parameters]
    if missing:
        return f"expected the parameters {', '.join(missing)} among {_text(there)}"
    if not _takes(written, there, method):
        return f"expected the parameters {_text(written)}, got {_text(there)}"
    return None


def _takes(written: inspect.Signature, there: inspect.Signature, method: bool) -> bool:
    ours, theirs = _positional(written), _positional(there)
    kinds, their_kinds = _kinds(written), _kinds(there)
    # A function that takes any arguments may be a wrapper of the real one.
    if len(ours) > len(theirs) and _Kind.VAR_POSITIONAL not in their_kinds:
        return False
    if len(theirs) > len(ours) and _Kind.VAR_POSITIONAL not in kinds:
        return False
    first = 1 if method else 0
    shared = min(len(ours), len(theirs))
    if ours[first:shared] != theirs[first:shared]:
        return False
    extra = _by_keyword(there) - _by_keyword(written)
    if extra and _Kind.VAR_KEYWORD not in kinds:
        return False
    lacking = _by_keyword(written) - set(there.parameters)
    return not lacking or _Kind.VAR_KEYWORD in their_kinds


def _positional(signature: inspect.Signature) -> list[str]:
    return [name for name, value in signature.parameters.items() if value.kind in _POSITIONAL]


def _by_keyword(signature: inspect.Signature) -> set[str]:
    found = signature.parameters.items()
    return {name for name, value in found if value.kind is _Kind.KEYWORD_ONLY}


def _kinds(signature: inspect.Signature) -> set[Any]:
    return {value.kind for value in signature.parameters.values()}


def _own(function: Callable[..., Any]) -> inspect.Signature:
    """Returns the signature in the source of a function, whatever it says that it wraps."""
    if not isinstance(function, types.FunctionType):
        return inspect.signature(function)
    bare = types.FunctionType(
        function.__code__, {}, function.__name__, function.__defaults__, function.__closure__
    )
    bare.__kwdefaults__ = function.__kwdefaults__
    return inspect.signature(bare)


def _text(signature: inspect.Signature) -> str:
    plain = [
        value.replace(annotation=_Kind.empty, default=_Kind.empty)
        for value in signature.parameters.values()
    ]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
