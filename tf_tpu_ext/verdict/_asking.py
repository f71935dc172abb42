"""Asks the target's compiler about each program, in parallel to the user's own work."""

from __future__ import annotations

import atexit
import ctypes
import json
import logging
import os
import pathlib
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from tf_tpu_ext import _graph_lines, _native
from tf_tpu_ext.verdict import _cache, _hlo, _judging
from tf_tpu_ext.verdict._compiler import Compiler, Files, UnavailableError, find_plugin
from tf_tpu_ext.verdict._records import Answer, Note, Verdict
from tf_tpu_ext.verdict._targets import Target

_log = logging.getLogger("tf_tpu_ext")

LIMIT_VARIABLE = "TF_TPU_EXT_VERDICT_SECONDS"
_LIMIT_SECONDS = 600.0


class Asker:
    """Takes the programs that were lowered for the targets and asks for their verdicts.

    There is one per process, because the native library has one queue of such programs.
    """

    def __init__(self) -> None:
        """Starts nothing yet."""
        self.targets: tuple[Target, ...] = ()
        # Called with a description of the current question, or an empty string if there is none.
        self.progress: Callable[[str], None] = lambda text: None
        # Guards the attributes below.
        self._changed = threading.Condition()
        self._verdicts: list[Verdict] = []
        self._answered = 0
        self._thread: threading.Thread | None = None
        self._compiler: Compiler | None = None

    def use(self, targets: tuple[Target, ...]) -> None:
        """Asks for these targets from now on; an empty tuple ends it.

        Programs compiled earlier are still checked for the earlier targets.
        """
        if targets == self.targets:
            return
        self.wait()
        self.targets = targets
        if not targets:
            return
        try:
            find_plugin()
        except UnavailableError as error:
            _log.warning("Programs are not checked for %s: %s", names(targets), error)
        if self._thread is None:
            # It must neither keep the process alive nor be killed while it holds files.
            self._thread = threading.Thread(target=self._work, name="tpu_verdicts", daemon=True)
            self._thread.start()
            atexit.register(self._end)

    def wait(self) -> None:
        """Waits until all programs compiled so far have their verdicts."""
        if self._thread is None:
            return
        count = _native.library().TfTpuExt_TargetPrograms
        count.restype = ctypes.c_int64
        with self._changed:
            added = count()
            self._changed.wait_for(lambda: self._answered >= added)

    def verdicts(self) -> tuple[Verdict, ...]:
        """Returns the verdicts so far, without waiting for more."""
        with self._changed:
            return tuple(self._verdicts)

    def _end(self) -> None:
        _native.library().TfTpuExt_WakeTarget()
        compiler = self._compiler
        if compiler is not None:
            compiler.close()

    def _work(self) -> None:
        with tempfile.TemporaryDirectory(prefix="tf_tpu_ext_") as folder:
            files = Files(*(pathlib.Path(folder, name) for name in ("asked", "options", "told")))
            while True:
                program = _native.text_of(
                    "TfTpuExt_TakeTargetProgram",
                    ctypes.c_char_p(os.fsencode(files.module)),
                    ctypes.c_char_p(os.fsencode(files.options)),
                )
                if program is None:
                    return
                told = [self._verdict(t, json.loads(program), files) for t in self.targets]
                self.progress("")
                with self._changed:
                    self._verdicts += told
                    self._answered += 1
                    self._changed.notify_all()

    def _verdict(self, target: Target, program: dict[str, Any], files: Files) -> Verdict:
        self.progress(f"asking the compiler of {target.name} about {program['name']}")
        error = program.pop("error")
        notes = _graph_lines.lines.fill_notes(Note(**note) for note in program.pop("notes"))
        fields: dict[str, Any] = {"answer": Answer.NOT_ASKED, "error": error}
        if not error:
            try:
                fields = self._answer(target, files)
            except UnavailableError as unavailable:
                fields["error"] = f"{unavailable}."
            except Exception as problem:
                # Whatever goes wrong with the question must not affect the script.
                _log.exception("A program could not be checked for %s", target.name)
                fields["error"] = f"{type(problem).__name__}: {problem}"
        name = program.pop("name")
        return Verdict(target=target.name, program=name, notes=notes, **program, **fields)

    def _answer(self, target: Target, files: Files) -> dict[str, Any]:
        """Returns the fields of the verdict on the program in the files.

        Raises:
            UnavailableError: The compiler can't be asked.
        """
        generation = target.generation
        plugin, version = find_plugin()
        asked = _hlo.parse(files.module.read_bytes())
        if _graph_lines.lines.fill(asked):
            files.module.write_bytes(asked.SerializeToString())
        options = files.options.read_bytes()
        name = _cache.key(asked, options, target.topology, generation.chip_config, version)
        cache = _cache.Cache(_cache.default_folder())
        kept = cache.get(name)
        if kept is not None:
            return {**kept, "cached": True}
        if self._compiler is None:
            self._compiler = Compiler(plugin, _libraries(), _limit_seconds())
        start = time.monotonic()
        answer = self._compiler.ask(target.topology, generation.chip_config, files)
        seconds = time.monotonic() - start
        if not answer.get("devices"):
            # The compiler can't be used; the program is not at fault.
            raise UnavailableError(
                f"the TPU compiler (libtpu {version}) can't be used: {answer['error']}"
            )
        told = None
        if not answer["error"]:
            told = _hlo.parse(files.optimized.read_bytes())
            _graph_lines.lines.fill(told)
        fields = _judging.judge(answer, asked, told, target)
        fields["seconds"] = seconds
        cache.put(name, fields)
        return fields


def names(targets: tuple[Target, ...]) -> str:
    """Returns the names of targets as a string."""
    return ", ".join(target.name for target in targets)


def _limit_seconds() -> float:
    return float(os.environ.get(LIMIT_VARIABLE) or _LIMIT_SECONDS)


def _libraries() -> list[str]:
    """Returns the paths of the TensorFlow libraries that ours needs, followed by ours."""
    import tensorflow as tf

    folder = pathlib.Path(tf.sysconfig.get_lib())
    needed = sorted(
        [*folder.glob("libtensorflow_framework.so.*"), *folder.glob("libtensorflow_cc.so.*")],
        key=lambda path: "_cc." in path.name,
    )
    file = _native.library_file()
    assert file is not None
    return [*map(str, needed), str(file.path)]


asker = Asker()
