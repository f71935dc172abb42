"""A patch that creates variables faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tf_tpu_ext.patches._changes import Changes


def install_variable_handles(changes: Changes) -> None:
    import tensorflow as tf
    from tensorflow.python.eager import context, execute
    from tensorflow.python.ops import gen_resource_variable_ops as generated

    def on_core_of_this_process() -> bool:
        running = context.context()
        device: str = running.device_name
        cores = f"{running.host_address_space()}/device:TPU:"
        return device.startswith(cores) and bool(running.executing_eagerly())

    def var_handle_op_of(stock: Callable[..., Any]) -> Callable[..., Any]:
        def var_handle_op(
            dtype: Any,
            shape: Any,
            container: str = "",
            shared_name: str = "",
            debug_name: str = "",
            allowed_devices: Sequence[str] = (),
            name: str | None = None,
        ) -> Any:
            if shared_name != context.anonymous_name() or not on_core_of_this_process():
                devices = allowed_devices or []
                return stock(dtype, shape, container, shared_name, debug_name, devices, name)
            attributes = (
                "dtype",
                execute.make_type(dtype, "dtype"),
                "shape",
                execute.make_shape(shape, "shape"),
            )
            inputs = [tf.constant(debug_name or "")]
            (handle,) = execute.execute(
                b"TpuExt>VariableHandle", 1, inputs, attributes, context.context(), name
            )
            return handle

        return var_handle_op

    changes.wrap(generated, "var_handle_op", var_handle_op_of)
