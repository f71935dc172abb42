"""Converts a profile by XProf, in a process of its own: python xprof_conversion.py PROFILE OUT.

Writes a JSON object with what each tool answers, by the tool's name.
"""

from __future__ import annotations

import json
import pathlib
import sys

from xprof.convert import raw_to_tool_data

TOOLS = ("overview_page", "op_profile", "trace_viewer", "memory_viewer", "input_pipeline_analyzer")


def convert(profile: str, module: str) -> dict[str, object]:
    """What each of the tools answers; `module` is what the memory viewer shows."""
    # As its server does first: that takes the programs out of the profile.
    raw_to_tool_data.xspace_to_tool_names([profile])
    answers = {}
    for tool in TOOLS:
        options = {"module_name": module, "memory_space": "0"}
        data, _ = raw_to_tool_data.xspace_to_tool_data([profile], tool, options)
        if not data:
            raise RuntimeError(f"XProf's {tool} has nothing to say of {profile}.")
        answers[tool] = json.loads(data)
    return answers


if __name__ == "__main__":
    profile, module, out = sys.argv[1:]
    pathlib.Path(out).write_text(json.dumps(convert(profile, module)), encoding="utf-8")
