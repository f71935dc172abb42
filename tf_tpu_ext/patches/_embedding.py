"""A patch of what TPU embedding's optimizers write into the engine's configuration."""

from __future__ import annotations

import functools
from typing import Any

from tf_tpu_ext.patches._attributes import (
    UnavailableError,
    Undo,
    replace_attributes,
)


def install_embedding_packing() -> Undo:
    from tensorflow.python.tpu import tpu_embedding_v2_utils

    optimizer_class = tpu_embedding_v2_utils._Optimizer
    stock = vars(optimizer_class).get("_set_optimization_parameters")
    if stock is None:
        raise UnavailableError("_Optimizer has no _set_optimization_parameters of its own.")

    @functools.wraps(stock)
    def set_optimization_parameters(self: Any, parameters: Any) -> None:
        # The field is an enum: False is its value UNSPECIFIED, and True is ENABLED.
        status = getattr(self, "low_dimensional_packing_status", 0)
        self.low_dimensional_packing_status = int(status)
        try:
            stock(self, parameters)
        finally:
            self.low_dimensional_packing_status = status

    return replace_attributes(
        [(optimizer_class, "_set_optimization_parameters", set_optimization_parameters)]
    )
