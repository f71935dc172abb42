"""All programs."""

from __future__ import annotations

from published import (
    garden,
    language,
    lingvo,
    mesh,
    simclr,
    tensor2tensor,
    tensorflow_tpu,
    uda,
    xlnet,
)

PROGRAMS = (
    *mesh.PROGRAMS,
    *garden.PROGRAMS,
    *tensorflow_tpu.PROGRAMS,
    *simclr.PROGRAMS,
    *uda.PROGRAMS,
    *language.PROGRAMS,
    *xlnet.PROGRAMS,
    *lingvo.PROGRAMS,
    *tensor2tensor.PROGRAMS,
)
