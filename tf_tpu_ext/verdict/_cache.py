"""Verdicts kept for later processes, by program, target and compiler version."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import tempfile
from typing import Any

from tf_tpu_ext._version import VERSION
from tf_tpu_ext.verdict._records import Answer, Buffer, Cost, Memory


def default_folder() -> pathlib.Path:
    """Returns the folder that holds the user's verdicts."""
    caches = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(caches, "tf_tpu_ext", "verdicts")


def key(asked: Any, options: bytes, *parts: str) -> str:
    """Returns the name of a verdict: a hash of everything it depends on.

    Args:
        asked: The module, an `HloModuleProto`.
        options: The serialized options that it is compiled with.
        *parts: The topology, the compiler's version, and whatever else matters.
    """
    module = type(asked)()
    module.CopyFrom(asked)
    module.ClearField("id")  # specific to the process
    module.ClearField("name")
    digest = hashlib.sha256()
    for part in (
        module.SerializeToString(deterministic=True),
        options,
        *(text.encode() for text in (VERSION, *parts)),
    ):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


class Cache:
    """A folder of verdicts. Any number of processes may share it; files may vanish at any time."""

    def __init__(self, folder: pathlib.Path) -> None:
        """Sets the folder, which is created when something is kept."""
        self._folder = folder

    def get(self, name: str) -> dict[str, Any] | None:
        """Returns the fields of a verdict, or None if there are none."""
        try:
            fields = json.loads(self._path(name).read_text())
            return _restored(fields)
        except (OSError, ValueError, TypeError, KeyError):
            return None  # missing or damaged: the compiler is asked again

    def put(self, name: str, fields: dict[str, Any]) -> None:
        """Keeps the fields of a verdict. If that fails, the compiler is asked again next time."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, draft = tempfile.mkstemp(dir=self._folder, suffix=".draft")
            with os.fdopen(handle, "w") as file:
                json.dump(fields, file, default=dataclasses.asdict)
            os.replace(draft, self._path(name))

    def _path(self, name: str) -> pathlib.Path:
        return self._folder / f"{name}.json"


def _restored(fields: dict[str, Any]) -> dict[str, Any]:
    fields["answer"] = Answer(fields["answer"])
    if fields.get("memory"):
        fields["memory"] = Memory(**fields["memory"])
    if fields.get("cost"):
        cost = fields["cost"]
        fields["cost"] = Cost(**{**cost, "untimed_calls": tuple(cost["untimed_calls"])})
    for name in ("largest", "padded"):
        fields[name] = tuple(Buffer(**part) for part in fields.get(name, ()))
    return fields
