"""Profiles of TensorFlow's profiler, for tests to read."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from tensorflow.tsl.profiler.protobuf import xplane_pb2

PICOSECONDS = 1e12


@dataclasses.dataclass(frozen=True)
class Event:
    """An event of a line; times in seconds since the profile began."""

    name: str
    begin: float
    end: float
    stats: dict[str, Any]

    def contains(self, other: Event) -> bool:
        """Whether the other one is inside of this one, but for what rounding loses."""
        return self.begin - 1e-9 <= other.begin and other.end <= self.end + 1e-9


def _stats(plane: Any, stats: Any) -> dict[str, Any]:
    values = {}
    for stat in stats:
        value = getattr(stat, stat.WhichOneof("value"))
        if stat.WhichOneof("value") == "ref_value":
            value = plane.stat_metadata[value].name
        values[plane.stat_metadata[stat.metadata_id].name] = value
    return values


@dataclasses.dataclass(frozen=True)
class Plane:
    """A plane, with its events by the names of their lines."""

    stats: dict[str, Any]
    lines: dict[str, list[Event]]
    # The names of all events that its metadata has.
    events: list[str]


def read_plane(plane: Any) -> Plane:
    lines: dict[str, list[Event]] = {}
    for line in plane.lines:
        events = lines.setdefault(line.name, [])
        for event in line.events:
            metadata = plane.event_metadata[event.metadata_id]
            begin = line.timestamp_ns / 1e9 + event.offset_ps / PICOSECONDS
            stats = {**_stats(plane, metadata.stats), **_stats(plane, event.stats)}
            name = metadata.display_name or metadata.name
            events.append(Event(name, begin, begin + event.duration_ps / PICOSECONDS, stats))
    names = [metadata.name for metadata in plane.event_metadata.values()]
    return Plane(_stats(plane, plane.stats), lines, names)


def profile_file(logdir: pathlib.Path) -> pathlib.Path:
    """The only profile under the folder."""
    [path] = logdir.rglob("*.xplane.pb")
    return path


def read_planes(logdir: pathlib.Path) -> dict[str, Plane]:
    """All planes of the only profile under the folder, by name."""
    space = xplane_pb2.XSpace.FromString(profile_file(logdir).read_bytes())
    return {plane.name: read_plane(plane) for plane in space.planes}


def read_cores(logdir: pathlib.Path) -> list[Plane]:
    """The planes of cores, which are numbered from 0 without a gap."""
    planes = read_planes(logdir)
    names = [name for name in planes if name.startswith("/device:TPU:")]
    assert sorted(names) == sorted(f"/device:TPU:{core}" for core in range(len(names)))
    return [planes[f"/device:TPU:{core}"] for core in range(len(names))]
