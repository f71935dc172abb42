"""Finds a script or module, and runs it as Python runs its main program."""

from __future__ import annotations

import dataclasses
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types


@dataclasses.dataclass(frozen=True)
class Program:
    """A main program.

    Attributes:
        file: Its file, as `sys.argv[0]` has it.
        spec: The spec of a module, None for a script.
    """

    file: str
    spec: importlib.machinery.ModuleSpec | None


def find(name: str, *, module: bool = False) -> Program:
    """Finds a program, and puts the folder from which Python would run it first in `sys.path`.

    Args:
        name: The path of a script, or the full name of a module or package.
        module: Whether it is a module. Packages around it are imported.

    Raises:
        ImportError: There is no such module, or it can't be run.

    Example:
        >>> from tf_tpu_ext import launcher
        >>> launcher.find("json.tool", module=True).spec.name
        'json.tool'
    """
    if module:
        _put_first(os.getcwd())
        return _find_module(name)
    _put_first(os.path.dirname(os.path.abspath(name)))
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
    code = None
    try:
        code = _load(program)
        exec(code, main.__dict__)
    except SystemExit as end:
        return _code(end)
    except BaseException as error:
        # Leaves out the frames of the launcher.
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not code:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _load(program: Program) -> types.CodeType:
    if program.spec is not None:
        loader = program.spec.loader
        assert isinstance(loader, importlib.abc.InspectLoader)
        code = loader.get_code(program.spec.name)
        if code is None:
            raise ImportError(f"the module {program.spec.name} has no Python code to run.")
        return code
    with open(program.file, "rb") as file:
        return compile(file.read(), program.file, "exec")


def _put_first(folder: str) -> None:
    """Puts the program's folder first in `sys.path`, in place of the command's own."""
    command = {
        os.path.dirname(os.path.realpath(sys.argv[0])),
        os.path.realpath(sys.argv[0]),
        os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "cli"),
    }
    sys.path[:] = [folder, *(entry for entry in sys.path if os.path.realpath(entry) not in command)]


def _code(end: SystemExit) -> int:
    """Returns the exit code with which Python would end."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1
