"""Runs the program from its folder, under a separate name."""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
import sys

_FOLDER = pathlib.Path(__file__).resolve().parent
_NAME = "_tf_tpu_ext_io_server"


def main() -> None:
    """Loads the program's modules without the enclosing package, and serves."""
    # The folder's modules must not be importable by their short names.
    sys.path[:] = [path for path in sys.path if pathlib.Path(path or ".").resolve() != _FOLDER]
    spec = importlib.util.spec_from_file_location(
        _NAME, _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)]
    )
    assert spec is not None
    sys.modules[_NAME] = importlib.util.module_from_spec(spec)
    importlib.import_module(f"{_NAME}.forkserver").main(*map(int, sys.argv[1:]))


if __name__ == "__main__":
    main()
