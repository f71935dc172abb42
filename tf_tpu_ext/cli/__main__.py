"""Runs `tf-tpu` from its folder: `python <site-packages>/tf_tpu_ext/cli doctor`.

Unlike `python -m tf_tpu_ext.cli`, this works where `import tf_tpu_ext` fails.
"""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
import sys

_FOLDER = pathlib.Path(__file__).resolve().parent
# Does not contain the package's name, whose import would load the native library.
_NAME = "_tf_tpu_command"


def main() -> int:
    """Loads the command without its parent package, runs it and returns the exit code."""
    spec = importlib.util.spec_from_file_location(
        _NAME, _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)]
    )
    assert spec is not None
    sys.modules[_NAME] = importlib.util.module_from_spec(spec)
    return int(importlib.import_module(f"{_NAME}.main").main())


if __name__ == "__main__":
    sys.exit(main())
