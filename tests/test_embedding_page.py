"""docs/embedding.md: its program trains."""

from __future__ import annotations

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "embedding.md"


def test_program(run_python, tmp_path):
    [code] = re.findall(
        r"<!-- embedding: example -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL
    )
    # Autograph reads the source of functions.
    program = tmp_path / "program.py"
    program.write_text(code)
    run = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
    printed = run_python(run, str(program), env={"TF_TPU_EXT_CORES": "2"}).stdout
    assert float(re.fullmatch(r"error (\d\.\d{4})\n", printed)[1]) < 0.05
