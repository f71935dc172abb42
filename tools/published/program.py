"""What there is to say about a published program."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Repository:
    """A repository on GitHub at the commit that was run."""

    name: str
    commit: str

    @property
    def folder(self) -> str:
        """The name of its clone in the folder of sources."""
        return self.name.rpartition("/")[2]


@dataclasses.dataclass(frozen=True)
class Environment:
    """A virtual environment beside TensorFlow, for programs that go together.

    Attributes:
        name: Also of its folder.
        packages: Installed with what they depend on.
        alone: Installed without that, since they ask for versions of their own time. `{minor}`
            stands for TensorFlow's minor version.
        finish: A function of a module, which the environment's Python runs after that.
    """

    name: str
    packages: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    finish: Callable[[], None] | None = None


@dataclasses.dataclass(frozen=True)
class Program:
    """A published program, and what it has to do here.

    In `command`, `{data}`, `{model}`, `{source}` and `{cores}` stand for its folders and the
    number of cores.

    Attributes:
        name: Its name here.
        package: What was published: a package with its version, or a repository.
        environment: Where it runs.
        command: What follows `tf-tpu run --cores N`.
        repositories: Clones that it needs, the first of which is `{source}`.
        prepare: Makes its data in a folder, run by the environment's Python. None if the program
            makes its own.
        path: Folders that the program expects in PYTHONPATH, as in `{source}/models`.
        in_source: Whether it runs in `{source}`, otherwise in `{model}`.
        variables: Further environment variables, in which `{data}` may stand too.
        loss: A regular expression with a group, which finds the losses in its output. None if it
            prints none.
        falls: The last loss is below the first one times this.
        alike: With other core counts, the last loss differs by at most this share. None if the
            program draws other random numbers then.
        checkpoint: The file in the folder of the model that names the latest checkpoint. When it
            names one after the first step, the program is killed and started again.
        resumed: A regular expression, found in the output of a program that goes on from a
            checkpoint.
        cores: With which numbers of cores it was run.
        seconds: How long it may take.
        on_cores: Whether it uses a TPU; an example may run on the host only.
    """

    name: str
    package: str
    environment: Environment
    command: tuple[str, ...]
    prepare: Callable[[pathlib.Path], None] | None = None
    repositories: tuple[Repository, ...] = ()
    path: tuple[str, ...] = ()
    in_source: bool = True
    variables: tuple[tuple[str, str], ...] = ()
    loss: str | None = r"\bloss = ([-+0-9.e]+)"
    falls: float = 1.0
    alike: float | None = None
    checkpoint: str | None = None
    # Before the first evaluation, which restores a checkpoint in any case.
    resumed: str = r"\A(?:(?!Starting evaluation)[\s\S])*?Restoring parameters from \S+-0*[1-9]"
    cores: tuple[int, ...] = (2, 8)
    seconds: float = 600.0
    on_cores: bool = True

    def version(self) -> str:
        """Returns what was published, with the commits of what is cloned."""
        commits = [f"{one.name}@{one.commit[:10]}" for one in self.repositories]
        return ", ".join(filter(None, [self.package, *commits]))
