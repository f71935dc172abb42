"""Asks the TPU compiler in a separate process, started by path, without TensorFlow's Python.

The TPU compiler starts threads, writes logs and may end its process. Each line of stdin is a JSON
array: a plugin, a topology, how the cores of a chip act, and the files for a module, its options
and the optimized module. The answer is a line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys


def main(libraries: list[str]) -> None:
    """Answers until stdin ends.

    Args:
        libraries: The paths of TensorFlow's libraries, and of ours after them.
    """
    # Whatever the compiler prints is not part of the answers.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        for library in libraries:
            native = ctypes.CDLL(library)
        native.TfTpuExt_CompileForTarget.restype = ctypes.c_void_p
        for question in sys.stdin:
            arguments = [ctypes.c_char_p(os.fsencode(text)) for text in json.loads(question)]
            address = native.TfTpuExt_CompileForTarget(*arguments)
            answers.write(ctypes.string_at(address).decode(errors="replace") + "\n")
            answers.flush()
            native.TfTpuExt_Free(ctypes.c_void_p(address))


if __name__ == "__main__":
    main(sys.argv[1:])
