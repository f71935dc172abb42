"""The patch that remembers what functions were traced with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tf_tpu_ext._traces import traces
from tf_tpu_ext.patches._changes import Changes


def install_traces(changes: Changes) -> None:
    from tensorflow.python.eager.polymorphic_function import transform

    def callbacks_of(stock: Callable[[Any], None]) -> Callable[[Any], None]:
        def call_and_note(concrete_fn: Any) -> None:
            traces.note(concrete_fn)
            stock(concrete_fn)

        return call_and_note

    changes.wrap(transform, "call_concrete_function_callbacks", callbacks_of)
