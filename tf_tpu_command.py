"""Starts `tf-tpu`.

A module beside the package and not in it: importing anything of tf_tpu_ext first imports the
package, whose native library may not load, and the command has to say why.
"""

from __future__ import annotations

import importlib.util
import pathlib
import runpy
import sys


def main() -> int:
    """Runs the command line of this process with the installed tf_tpu_ext, without importing it.

    Returns:
        1 if there is no tf_tpu_ext. Otherwise it does not return.

    Raises:
        SystemExit: The command's end, with its exit code: 0 for success, 1 for a problem that was
            found, 2 for a wrong command line.

    Example:
        $ tf-tpu doctor
    """
    # Finding a package of the top level imports nothing.
    spec = importlib.util.find_spec("tf_tpu_ext")
    if spec is None or spec.origin is None:
        print(
            f"tf-tpu found no tf_tpu_ext for {sys.executable}. Install it for this Python: in a "
            "checkout of tf_tpu_ext, run: pip install '.[cpu]'",
            file=sys.stderr,
        )
        return 1
    runpy.run_path(str(pathlib.Path(spec.origin).parent / "cli"), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
