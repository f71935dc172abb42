"""The patch that lets no session wait without end for a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tf_tpu_ext import _session_watch
from tf_tpu_ext.patches._changes import Changes

# Of a session, its SessionWatch or None.
_WATCH = "_tpu_ext_watch"


def install_watched_sessions(changes: Changes) -> None:
    from tensorflow.python.client import session

    def init_of(stock: Callable[..., None]) -> Callable[..., None]:
        def init(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
            setattr(self, _WATCH, _session_watch.watch(target, config))
            stock(self, target, graph, config)

        return init

    def do_call_of(stock: Callable[..., Any]) -> Callable[..., Any]:
        def do_call(self: Any, fn: Any, *args: Any) -> Any:
            watch = getattr(self, _WATCH, None)
            return stock(self, fn, *args) if watch is None else watch.call(stock, self, fn, *args)

        return do_call

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
    changes.wrap(session.BaseSession, "_do_call", do_call_of)
    changes.wrap(session.BaseSession, "close", close_of)
