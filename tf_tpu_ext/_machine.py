"""The virtual TPU machine: its settings and what it reports."""

from __future__ import annotations

import ctypes
import dataclasses
import inspect
import json
import os
from typing import Any

from tf_tpu_ext import _native
from tf_tpu_ext._options import Options, to_text

CORES_VARIABLE = "TF_TPU_EXT_CORES"
WAIT_LIMIT_VARIABLE = "TF_TPU_EXT_WAIT_LIMIT_SECONDS"
COMPILATION_CACHE_VARIABLE = "TF_TPU_EXT_COMPILATION_CACHE"
DEFAULT_CORES = 8
DEFAULT_WAIT_LIMIT_SECONDS = 1800.0


@dataclasses.dataclass(frozen=True)
class Machine:
    """What `configure` returns: the machine as it is now.

    Example:
        >>> import tf_tpu_ext
        >>> machine = tf_tpu_ext.machine()
        >>> print(machine.cores, machine.mesh_shape, machine.wait_limit_seconds)
        8 (2, 2, 1, 2) 1800.0

    Attributes:
        cores: Number of virtual cores; `/device:TPU:0` to `/device:TPU:<cores - 1>`.
        mesh_shape: Extents `(x, y, z, cores per chip)` of the topology.
        wait_limit_seconds: How long a core, a collective or a host transfer may wait for its peers.
        local_devices: Whether this process has cores of its own.
        compilation_cache: The folder that keeps compiled programs for later processes; None if
            there is none.
        options: The options of programs that were traced without any of their own.
    """

    cores: int
    mesh_shape: tuple[int, int, int, int]
    wait_limit_seconds: float
    local_devices: bool
    compilation_cache: str | None
    options: Options


@dataclasses.dataclass(frozen=True)
class Compilation:
    """One compilation of a TPU program.

    Example:
        >>> import tensorflow as tf
        >>> import tf_tpu_ext
        >>> _ = tf_tpu_ext.tpu.rewrite(lambda x: x * 2.0, [tf.ones([2])])
        >>> [program] = tf_tpu_ext.compilation_stats().programs
        >>> print(program.argument_shapes, program.num_replicas, program.error == "")
        [2] 1 True

    Attributes:
        program_id: Number of the program in this process.
        name: The computation's name.
        argument_shapes: Shapes of the arguments it was compiled for, joined by semicolons.
        num_replicas: Number of replicas.
        num_cores_per_replica: Number of cores of each replica.
        stacked_replicas: How many replicas run as one program, 1 if each has its own.
        lowering_seconds: Time from the TensorFlow graph to XLA's representation.
        building_seconds: Time from there to machine code.
        restored: Whether the machine code was found in the compilation cache.
        tensorflow_kernels: Number of ops that TensorFlow's own kernels compute.
        hits: How often the kept program was used again.
        error: Why the compilation failed; empty if it did not.
    """

    program_id: int
    name: str
    argument_shapes: str
    num_replicas: int
    num_cores_per_replica: int
    stacked_replicas: int
    lowering_seconds: float
    building_seconds: float
    restored: bool
    tensorflow_kernels: int
    hits: int
    error: str


@dataclasses.dataclass(frozen=True)
class CompilationStats:
    """All compilations of the process so far.

    Example:
        >>> import tf_tpu_ext
        >>> for _ in range(3):
        ...     _ = tf_tpu_ext.tpu.rewrite(lambda x: x * 2.0, [3.0])
        >>> stats = tf_tpu_ext.compilation_stats()
        >>> print(stats.compilations, stats.hits, stats.seconds > 0)
        1 2 True

    Attributes:
        programs: The compilations, oldest first.
    """

    programs: tuple[Compilation, ...]

    @property
    def compilations(self) -> int:
        """Number of compilations, failed ones included."""
        return len(self.programs)

    @property
    def hits(self) -> int:
        """How often a kept program was used instead of a compilation."""
        return sum(program.hits for program in self.programs)

    @property
    def seconds(self) -> float:
        """Total time spent in compilations."""
        return sum(program.lowering_seconds + program.building_seconds for program in self.programs)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """One cluster of `outside_compilation` of a traced program.

    Example:
        >>> import tf_tpu_ext
        >>> import tensorflow as tf
        >>> def computation(x):
        ...     return tf_tpu_ext.tpu.outside_compilation(lambda x: tf.strings.length(
        ...         tf.strings.as_string(x)), x)
        >>> _ = tf_tpu_ext.tpu.rewrite(computation, [1234])
        >>> [cluster] = tf_tpu_ext.transfer_stats().clusters
        >>> print(cluster.folded, cluster.calls, cluster.bytes_to_device)
        True 1 4

    Attributes:
        cluster: Its number in its computation, as TensorFlow counts.
        source: The Python line that made it, `file:line`; empty if TensorFlow does not know it.
        not_folded_because: Empty if the compiled program calls the cluster by itself; else why it
            runs in a host graph beside the program.
        calls: Calls so far, of all replicas. In a host graph a cluster that stands before or after
            all that the cores do is no call, since nothing crosses in the middle of it.
        bytes_to_host: Bytes of its arguments.
        bytes_to_device: Bytes of its results.
        running_seconds: Time that its ops took, summed over calls. In a host graph it ends when
            the cores have the results, and is 0 without any.
        waiting_seconds: Time that cores waited for its results; if it has none and is folded, the
            time they took to hand it over.
    """

    cluster: str
    source: str
    not_folded_because: str
    calls: int
    bytes_to_host: int
    bytes_to_device: int
    running_seconds: float
    waiting_seconds: float

    @property
    def folded(self) -> bool:
        """Whether the compiled program calls the cluster by itself."""
        return not self.not_folded_because


@dataclasses.dataclass(frozen=True)
class TransferStats:
    """What went between host and cores in the process so far.

    Example:
        >>> import tf_tpu_ext
        >>> import tensorflow as tf
        >>> padding = tf_tpu_ext.tpu.PaddingSpec.POWER_OF_TWO
        >>> shapes = [tf.TensorShape([None])]
        >>> _ = tf_tpu_ext.tpu.replicate(
        ...     tf.reduce_sum, [[tf.ones([5])]], maximum_shapes=shapes, padding_spec=padding)
        >>> stats = tf_tpu_ext.transfer_stats()
        >>> print(stats.paddable_elements, stats.padding_elements, stats.padding_waste)
        8 3 0.375

    Attributes:
        clusters: The clusters of `outside_compilation`, in the order in which their programs were
            first run. Of more than 10,000 the oldest are forgotten.
        paddable_elements: Elements of inputs that the host may have padded, as `maximum_shapes` and
            a `padding_spec` ask for, over all replicas and runs; padding included. Padding that XLA
            is not told of (`enable_xla_dynamic_padder=False`) is not counted.
        padding_elements: How many of them were padding.
    """

    clusters: tuple[Cluster, ...]
    paddable_elements: int
    padding_elements: int

    @property
    def padding_waste(self) -> float:
        """The share of padding in inputs that may be padded, from 0 to 1."""
        return self.padding_elements / self.paddable_elements if self.paddable_elements else 0.0


def configure(
    cores: int | None = None,
    *,
    wait_limit_seconds: float | None = None,
    local_devices: bool | None = None,
    compilation_cache: str | os.PathLike[str] | None = None,
    options: Options | None = None,
    **switches: bool | None,
) -> Machine:
    """Sets up the virtual TPU machine of this process; what is left out stays as it is.

    The number of cores can change only before TensorFlow has made its devices, which the first
    operation does. Scripts that cannot be changed take the environment variables
    `TF_TPU_EXT_CORES`, `TF_TPU_EXT_WAIT_LIMIT_SECONDS` and `TF_TPU_EXT_COMPILATION_CACHE` instead.

    Args:
        cores: Number of cores, from 1 to 1024. The default is 8, as one Cloud TPU host has. Two
            cores make a chip, unless the number is odd.
        wait_limit_seconds: After how many seconds a core that waits for other cores or for the host
            gives up, with an error that says who waits for what. The default is 1800.
        local_devices: False for a client of another process's cores (`grpc://` addresses), which
            has no cores of its own. The default is True; like `cores` it can't change later.
        compilation_cache: A folder that keeps the machine code of programs that are compiled from
            now on, for this and later processes; it is made if it is new. Any number of processes
            may share it. Files in it may be deleted at any time, and are no longer used under
            another version of TensorFlow or of this package, or on another kind of processor.
            An empty string: none is kept, which is the default.
        options: The options of programs. They hold for those that are traced from now on
            (`fold_host_calls`, `launch_from_host`) or compiled from now on (the others), unless
            `with Options(...)` says otherwise where they are traced. All are True by default.
        **switches: The same one by one, by the names that `Options` has for them, such as
            `stack_replicas=False`; they prevail over `options`.

    Returns:
        The machine as it is now.

    Raises:
        ValueError: A setting is out of its range, or the folder can't be written to.
        TypeError: A setting is of another type, or there is none of that name.
        RuntimeError: TensorFlow has made its devices, with another number of cores.

    Example:
        >>> import tf_tpu_ext
        >>> tf_tpu_ext.configure(cores=2).mesh_shape
        (1, 1, 1, 2)
        >>> tf_tpu_ext.configure(stack_replicas=False).cores
        2

    The topology is that of https://www.tensorflow.org/api_docs/python/tf/tpu/experimental/Topology.
    """
    current = machine()
    cores = current.cores if cores is None else cores
    limit = current.wait_limit_seconds if wait_limit_seconds is None else wait_limit_seconds
    local = current.local_devices if local_devices is None else local_devices
    if isinstance(cores, bool) or not isinstance(cores, int):
        raise ValueError(f"`cores` must be an int. Received: cores={cores!r} ({type(cores)})")
    if not 0 < limit < float("inf"):
        raise ValueError(
            "`wait_limit_seconds` must be a positive, finite number. "
            f"Received: wait_limit_seconds={limit!r}"
        )
    message = _native.text_of(
        "TfTpuExt_Configure",
        ctypes.c_int(cores),
        ctypes.c_int(local),
        ctypes.c_double(limit),
        ctypes.c_char_p(to_text(_joined(options, switches)).encode()),
        ctypes.c_char_p(None if compilation_cache is None else os.fsencode(compilation_cache)),
    )
    if message is not None:
        raise (RuntimeError if "already created" in message else ValueError)(message)
    _native.refresh_physical_devices()
    return machine()


def _with_switches(signature: inspect.Signature) -> inspect.Signature:
    """Returns the signature of `configure` with the names of its switches, for `help`."""
    own = [x for x in signature.parameters.values() if x.kind is not x.VAR_KEYWORD]
    switches = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=field.type
        )
        for field in dataclasses.fields(Options)
    ]
    return signature.replace(parameters=[*own, *switches])


configure.__signature__ = _with_switches(  # type: ignore[attr-defined]
    inspect.signature(configure)
)


def _joined(options: Options | None, switches: dict[str, bool | None]) -> Options:
    names = [field.name for field in dataclasses.fields(Options)]
    unknown = sorted(set(switches) - set(names))
    if unknown:
        raise TypeError(
            f"configure got {', '.join(unknown)}, expected cores, wait_limit_seconds, "
            f"local_devices, compilation_cache, options, or a switch of Options: "
            f"{', '.join(names)}."
        )
    return Options(**switches).over(options or Options())


def machine() -> Machine:
    """Returns the machine's present settings.

    Example:
        >>> import tf_tpu_ext
        >>> tf_tpu_ext.machine().cores
        8
    """
    settings = _take_json("TfTpuExt_Machine")
    settings["mesh_shape"] = tuple(settings["mesh_shape"])
    settings["wait_limit_seconds"] = float(settings["wait_limit_seconds"])
    switches = [field.name for field in dataclasses.fields(Options)]
    options = Options(**{name: settings.pop(name) for name in switches})
    return Machine(**settings, options=options)


def is_virtual() -> bool:
    """Whether the TPU devices of this process are virtual cores made by this package.

    False where the package stepped aside for a real TPU, and in a client of another process's cores
    (`configure(local_devices=False)`), which has none.

    Example:
        >>> import tf_tpu_ext
        >>> tf_tpu_ext.is_virtual()
        True
    """
    return _native.is_loaded() and machine().local_devices


def compilation_stats() -> CompilationStats:
    """Tells how often TPU programs were compiled, for which shapes, and how long it took.

    Programs are kept for the life of the process, by their graph, argument shapes and options.

    Example:
        >>> import tf_tpu_ext
        >>> before = tf_tpu_ext.compilation_stats().compilations
        >>> _ = tf_tpu_ext.tpu.rewrite(lambda x: x * 2.0, [3.0])
        >>> tf_tpu_ext.compilation_stats().compilations - before
        1
    """
    records = _take_json("TfTpuExt_CompilationRecords")
    return CompilationStats(tuple(Compilation(**record) for record in records))


def transfer_stats() -> TransferStats:
    """Tells what the calls of clusters of `outside_compilation` cost, and how much was padding.

    A cluster is known from the first run of its program on. Clusters that TensorFlow makes by
    itself under soft placement are not counted.

    Example:
        >>> import tf_tpu_ext
        >>> import tensorflow as tf
        >>> @tf.function
        ... def step(x):
        ...     on_host = lambda x: tf_tpu_ext.tpu.outside_compilation(tf.square, x)
        ...     return tf_tpu_ext.tpu.rewrite(on_host, [x])
        >>> _ = step(tf.constant(3.0))
        >>> cluster = tf_tpu_ext.transfer_stats().clusters[-1]
        >>> print(cluster.folded, cluster.calls, cluster.bytes_to_host)
        True 1 4
    """
    records = _take_json("TfTpuExt_ClusterRecords")
    elements, padding = ctypes.c_int64(), ctypes.c_int64()
    _native.library().TfTpuExt_Padding(ctypes.byref(elements), ctypes.byref(padding))
    return TransferStats(
        tuple(Cluster(**record) for record in records), elements.value, padding.value
    )


def configure_from_environment() -> None:
    """Applies the environment variables, if they are set.

    Raises:
        ValueError: A variable is not a number, or out of its range, or names a folder that can't be
            written to.
    """
    cores = _number_variable(CORES_VARIABLE, int)
    limit = _number_variable(WAIT_LIMIT_VARIABLE, float)
    cache = os.environ.get(COMPILATION_CACHE_VARIABLE) or None
    if cores is not None or limit is not None or cache is not None:
        configure(cores, wait_limit_seconds=limit, compilation_cache=cache)


def _number_variable(name: str, parse: type[int] | type[float]) -> Any:
    text = os.environ.get(name)
    if not text:
        return None
    try:
        return parse(text)
    except ValueError:
        kind = "an integer" if parse is int else "a number"
        raise ValueError(
            f"The environment variable {name} must be {kind}. Received: {name}={text!r}"
        ) from None


def _take_json(function: str) -> Any:
    """Calls a function of the library that returns JSON."""
    return json.loads(_native.text_of(function) or "null")
