"""The patch that remembers what functions were traced with."""

from __future__ import annotations

from tf_tpu_ext._traces import traces
from tf_tpu_ext.patches._changes import Changes, find


def install_traces(changes: Changes) -> None:
    from tensorflow.python.eager.polymorphic_function import transform

    callbacks = find(transform, "CONCRETE_FUNCTION_CALLBACKS")
    callbacks.append(traces.note)
    changes.on_undo(lambda: callbacks.remove(traces.note))
