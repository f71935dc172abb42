"""How a patch puts its own into TensorFlow, and takes it back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

Undo = Callable[[], None]


class UnavailableError(Exception):
    """A patch does not fit the TensorFlow of this process."""


def replace_attributes(replacements: Sequence[tuple[type | ModuleType, str, object]]) -> Undo:
    """Puts objects in the places `(owner, name)`; undoing restores all or, on an error, none."""
    # vars() gives the object itself, where getattr would bind it. What a class inherits is not
    # there, and is restored by taking ours away.
    stock = [vars(owner).get(name) for owner, name, _ in replacements]
    for owner, name, replacement in replacements:
        setattr(owner, name, replacement)

    def undo() -> None:
        for owner, name, replacement in replacements:
            found = vars(owner).get(name)
            if found is not replacement:
                raise RuntimeError(
                    f"{_full_name(owner)}.{name} can't be restored: expected what tf_tpu_ext had "
                    f"put there, got {found!r}. Undo that other change first, then call "
                    "undo_all() again."
                )
        for (owner, name, _), original in zip(replacements, stock, strict=True):
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

    return undo


def _full_name(owner: type | ModuleType) -> str:
    if isinstance(owner, ModuleType):
        return owner.__name__
    return f"{owner.__module__}.{owner.__qualname__}"
