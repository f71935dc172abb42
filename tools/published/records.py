"""All programs."""

from __future__ import annotations

from published import garden, mesh

PROGRAMS = (*mesh.PROGRAMS, *garden.PROGRAMS)
