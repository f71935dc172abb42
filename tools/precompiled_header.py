"""The header that quick builds compile once: all headers from other projects that cc/ includes.

Reading TensorFlow's and XLA's headers is nine tenths of the cost of compiling a file.
"""

from __future__ import annotations

import pathlib
import re

HEADER = re.compile(r'^\s*#\s*include\s+([<"][^>"]+[>"])', re.MULTILINE)
MACRO = re.compile(r"^#define\s+EIGEN_\w+$", re.MULTILINE)
OWN = '"cc/'
# Its headers shadow TensorFlow's of the same names, and select theirs by the minor version.
STAND_INS = "cc/abi"
# With a sanitizer, Abseil's containers and protobuf's messages would have a different layout than
# in TensorFlow's library.
PLAIN_LAYOUT = (
    "#include <absl/base/config.h>",
    *(f"#undef ABSL_HAVE_{sanitizer}_SANITIZER" for sanitizer in ("ADDRESS", "THREAD", "LEAK")),
)


def header_text(root: pathlib.Path) -> str:
    """Returns the header's text for the sources below `root`."""
    headers: set[str] = set()
    macros: set[str] = set()
    for path in sorted((root / "cc").rglob("*")):
        if path.suffix not in (".cc", ".h") or path.is_relative_to(root / STAND_INS):
            continue
        text = path.read_text()
        macros.update(MACRO.findall(text))
        headers.update(name for name in HEADER.findall(text) if not name.startswith(OWN))
    lines = ["#pragma once", *PLAIN_LAYOUT, *sorted(macros)]
    for header in sorted(headers):
        # Not every minor version of TensorFlow has every header.
        lines += [f"#if __has_include({header})", f"#include {header}", "#endif"]
    return "\n".join(lines) + "\n"
