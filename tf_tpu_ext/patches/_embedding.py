"""A patch of the configuration that the optimizers of TPU embeddings write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tf_tpu_ext.patches._changes import Changes


def install_embedding_packing(changes: Changes) -> None:
    from tensorflow.python.tpu import tpu_embedding_v2_utils

    def set_of(stock: Callable[..., None]) -> Callable[..., None]:
        def set_optimization_parameters(self: Any, parameters: Any) -> None:
            # The field is an enum: False is its value UNSPECIFIED, and True is ENABLED.
            status = getattr(self, "low_dimensional_packing_status", 0)
            self.low_dimensional_packing_status = int(status)
            try:
                stock(self, parameters)
            finally:
                self.low_dimensional_packing_status = status

        return set_optimization_parameters

    changes.wrap(tpu_embedding_v2_utils._Optimizer, "_set_optimization_parameters", set_of)
