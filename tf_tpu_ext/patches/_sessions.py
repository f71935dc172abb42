"""The patch that lets no session wait without end for a worker."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tf_tpu_ext import _machine, _session_watch
from tf_tpu_ext.patches._changes import Changes

# Of a session, its SessionWatch or None.
_WATCH = "_tpu_ext_watch"


def _devices(stock: Callable[..., Any], session: Any, watch: _session_watch.SessionWatch) -> Any:
    """Lists the devices of a watched session.

    TensorFlow holds Python's lock until the worker has answered, so no thread could leave the call.
    Only a session with a time limit ends it.
    """
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto()
    if session._config is not None:
        config.CopyFrom(session._config)
    limit = _machine.machine().host_limit_seconds
    config.operation_timeout_in_ms = max(1, int(1000 * limit))
    try:
        with tf.compat.v1.Session(tf.compat.as_str(session._target), config=config) as limited:
            return stock(limited)
    except tf.errors.DeadlineExceededError as error:
        raise watch.lost(error.message) from error


def install_watched_sessions(changes: Changes) -> None:
    from tensorflow.python.client import session

    def init_of(stock: Callable[..., None]) -> Callable[..., None]:
        def init(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
            setattr(self, _WATCH, _session_watch.watch(target, config))
            stock(self, target, graph, config)

        return init

    def watched_of(stock: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: Any, *args: Any) -> Any:
            watch = getattr(self, _WATCH, None)
            return stock(self, *args) if watch is None else watch.call(stock, self, *args)

        return watched

    def list_devices_of(stock: Callable[..., Any]) -> Callable[..., Any]:
        def list_devices(self: Any) -> Any:
            watch = getattr(self, _WATCH, None)
            return stock(self) if watch is None else _devices(stock, self, watch)

        return list_devices

    def make_callable_of(stock: Callable[..., Any]) -> Callable[..., Any]:
        def make_callable(self: Any, callable_options: Any) -> Any:
            watch = getattr(self, _WATCH, None)
            if watch is None:
                return stock(self, callable_options)
            return functools.partial(watch.call, watch.call(stock, self, callable_options))

        return make_callable

    def close_of(stock: Callable[..., None]) -> Callable[..., None]:
        def close(self: Any) -> None:
            watch = getattr(self, _WATCH, None)
            if watch is None or self._closed:
                stock(self)
            else:
                watch.close(stock, self)

        return close

    # Every class has an __init__ that takes anything.
    changes.wrap(session.BaseSession, "__init__", init_of, uses=("target", "config"))
    # Callables run, and add what is new in the graph, without _do_call.
    for name in ("_do_call", "_call_tf_sessionrun", "_extend_graph"):
        changes.wrap(session.BaseSession, name, watched_of)
    changes.wrap(session.BaseSession, "list_devices", list_devices_of)
    changes.wrap(session.BaseSession, "_make_callable_from_options", make_callable_of)
    changes.wrap(session.BaseSession, "close", close_of)
