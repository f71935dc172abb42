"""All programs."""

from __future__ import annotations

from published import mesh

PROGRAMS = (*mesh.PROGRAMS,)
