"""Finds a script or module and runs it as Python runs its main program."""

from __future__ import annotations
import __future__

import ast
import dataclasses
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types

from tf_tpu_ext.launcher import _hints, _imports, _pipelines

# Compiler flags that `from __future__ import ...` sets.
_FUTURE = 0
for _name in __future__.all_feature_names:
    _FUTURE |= getattr(__future__, _name).compiler_flag


@dataclasses.dataclass(frozen=True)
class Program:
    """A main program.

    Attributes:
        file: Its file, as in `sys.argv[0]`.
        spec: The spec of a module, or None for a script.
    """

    file: str
    spec: importlib.machinery.ModuleSpec | None

    @property
    def name(self) -> str:
        """The user's name for the program."""
        return self.spec.name if self.spec is not None else os.path.basename(self.file)


def find(name: str, *, module: bool = False) -> Program:
    """Finds a program and puts the folder that Python would run it from first in `sys.path`.

    Args:
        name: The path of a script, or the full name of a module or package.
        module: Whether it is a module. Its parent packages are imported.

    Raises:
        ImportError: There is no such module, or it can't be run.

    Example:
        >>> from tf_tpu_ext import launcher
        >>> launcher.find("json.tool", module=True).spec.name
        'json.tool'
    """
    if module:
        sys.path.insert(0, os.getcwd())
        return _find_module(name)
    sys.path.insert(0, os.path.dirname(os.path.abspath(name)))
    return Program(name, None)


def _find_module(name: str) -> Program:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise ImportError(f"the module {name} can't be found: {error}", name=name) from error
    if spec is not None and spec.submodule_search_locations is not None:
        return _find_module(f"{name}.__main__")
    if spec is None:
        raise ImportError(
            f"there is no module {name}. Expected the name of a module, or of a package with a "
            f"module __main__, that Python finds from {os.getcwd()}.",
            name=name,
        )
    if spec.origin is None or not isinstance(spec.loader, importlib.abc.InspectLoader):
        raise ImportError(f"the module {name} has no Python code to run.", name=name)
    return Program(spec.origin, spec)


def run(program: Program, arguments: list[str]) -> int:
    """Runs a program and returns its exit code."""
    main = types.ModuleType("__main__")
    main.__file__ = program.file
    if program.spec is not None:
        main.__spec__ = program.spec
        main.__loader__ = program.spec.loader
        main.__package__ = program.spec.parent
    sys.modules["__main__"] = main
    sys.argv = [program.file, *arguments]
    codes: list[types.CodeType] = []
    try:
        codes = _load(program)
        for number, code in enumerate(codes, 1):
            exec(code, main.__dict__)
            if number < len(codes):
                _pipelines.wrap_ready(lambda namespace: namespace is main.__dict__)
    except SystemExit as end:
        return _code(end)
    except BaseException as error:
        # Skips the launcher's frames.
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code not in codes:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        advice = _hints.hint(error)
        if advice is not None:
            print(f"tf-tpu: {advice}", file=sys.stderr)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _load(program: Program) -> list[types.CodeType]:
    """Returns the program's code. The second part runs only in the main program."""
    if program.spec is not None:
        loader = program.spec.loader
        assert isinstance(loader, importlib.abc.InspectLoader)
        code = loader.get_code(program.spec.name)
        if code is None:
            raise ImportError(f"the module {program.spec.name} has no Python code to run.")
        source = loader.get_source(program.spec.name)
        return [code] if source is None else _parts(source, program.file)
    with open(program.file, "rb") as file:
        return _parts(file.read(), program.file)


def _parts(source: str | bytes, file: str) -> list[types.CodeType]:
    # Compiled from the source, so that a SyntaxError shows its line.
    whole = compile(source, file, "exec", dont_inherit=True)
    tree = ast.parse(source, file)
    guards = [n for n, statement in enumerate(tree.body) if _imports.is_main_guard(statement)]
    if not guards:
        return [whole]
    first = ast.Module(tree.body[: guards[0]], tree.type_ignores)
    last = ast.Module(tree.body[guards[0] :], [])
    future = whole.co_flags & _FUTURE
    return [compile(part, file, "exec", flags=future, dont_inherit=True) for part in (first, last)]


def _code(end: SystemExit) -> int:
    """Returns the exit code that Python would end with."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1
