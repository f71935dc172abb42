"""The virtual TPU machine: its settings and transfer statistics."""

from __future__ import annotations

import ctypes
import dataclasses
import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from tf_tpu_ext import _native, verdict
from tf_tpu_ext._compilations import argument_name
from tf_tpu_ext._options import Options, from_switches, to_text
from tf_tpu_ext.verdict._asking import asker
from tf_tpu_ext.verdict._targets import Target

CORES_VARIABLE = "TF_TPU_EXT_CORES"
WAIT_LIMIT_VARIABLE = "TF_TPU_EXT_WAIT_LIMIT_SECONDS"
HOST_LIMIT_VARIABLE = "TF_TPU_EXT_HOST_LIMIT_SECONDS"
SPARSE_CORES_VARIABLE = "TF_TPU_EXT_SPARSE_CORES"
COMPILATION_CACHE_VARIABLE = "TF_TPU_EXT_COMPILATION_CACHE"
DEFAULT_CORES = 8
DEFAULT_WAIT_LIMIT_SECONDS = 1800.0


class _Chosen:
    """What `configure` was asked for, for settings whose value also depends on other settings."""

    matmul_precision: Literal["full", "tpu"] | None = None


_chosen = _Chosen()


@dataclasses.dataclass(frozen=True)
class Machine:
    """The settings of the machine, as `configure` and `machine` return them.

    Example:
        >>> import tf_tpu_ext
        >>> machine = tf_tpu_ext.machine()
        >>> print(machine.cores, machine.mesh_shape, machine.wait_limit_seconds)
        8 (2, 2, 1, 2) 1800.0

    Attributes:
        cores: Number of virtual cores, `/device:TPU:0` to `/device:TPU:<cores - 1>`.
        mesh_shape: Size `(x, y, z, cores per chip)` of the topology.
        wait_limit_seconds: How many seconds a core, a collective or a host transfer may wait.
        host_limit_seconds: How many seconds another worker may give no sign of life.
        sparse_cores: Number of SparseCores per core that the topology reports.
        local_devices: Whether this process has virtual cores.
        max_programs: How many compiled programs are kept.
        max_program_bytes: How many bytes they may take in total.
        compilation_cache: The folder that keeps compiled programs for later processes, or None.
        max_cache_bytes: How large that folder may become, in bytes.
        target: The real TPUs whose compiler checks the programs; see docs/verdict.md.
        options: The options of programs that are not traced inside `with Options(...)`.
    """

    cores: int
    mesh_shape: tuple[int, int, int, int]
    wait_limit_seconds: float
    host_limit_seconds: float
    sparse_cores: int
    local_devices: bool
    max_programs: int
    max_program_bytes: int
    compilation_cache: str | None
    max_cache_bytes: int
    target: tuple[str, ...]
    options: Options


@dataclasses.dataclass(frozen=True)
class Cluster:
    """One `outside_compilation` cluster, with the cost of its calls.

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
        cluster: TensorFlow's number for the cluster within its computation.
        source: The Python line that made the cluster, as `file:line`; empty if unknown.
        not_folded_because: Why the cluster runs in a graph on the host; empty if it is folded.
        calls: Number of calls so far, over all replicas. A cluster in the host graph that comes
            before or after everything that the cores do is not called, so its count is 0.
        bytes_to_host: Total size of the arguments, in bytes.
        bytes_to_device: Total size of the results, in bytes.
        running_seconds: Total seconds that the ops ran. In the host graph, this includes passing
            the results to the cores, and is 0 if there are no results.
        waiting_seconds: Total seconds that cores waited for results. For a folded cluster without
            results, the time that the cores took to make the calls.
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
        """Whether the compiled program calls the cluster directly.

        Example:
            >>> on_host = lambda x: tf_tpu_ext.tpu.outside_compilation(lambda y: y + 1, x)
            >>> _ = tf_tpu_ext.tpu.rewrite(on_host, [1])
            >>> tf_tpu_ext.transfer_stats().clusters[-1].folded
            True
        """
        return not self.not_folded_because


@dataclasses.dataclass(frozen=True)
class PaddedInput:
    """One input that the host pads, with the padding over all runs.

    Example:
        >>> import tf_tpu_ext
        >>> tf_tpu_ext.PaddedInput(1, 0, "words", elements=8, padding=2).waste
        0.25

    Attributes:
        program_id: The program's number, as in `compilation_stats()`.
        argument: The argument's number within the program.
        name: The argument's name; empty if unknown.
        elements: Number of elements, including padding, over all replicas and runs.
        padding: How many of them were padding.
    """

    program_id: int
    argument: int
    name: str
    elements: int
    padding: int

    @property
    def waste(self) -> float:
        """The fraction that was padding, from 0.0 to 1.0.

        Example:
            >>> tf_tpu_ext.PaddedInput(1, 0, "", elements=0, padding=0).waste
            0.0
        """
        return self.padding / self.elements if self.elements else 0.0


@dataclasses.dataclass(frozen=True)
class TransferStats:
    """What the host and the cores have exchanged in this process so far.

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
        clusters: The `outside_compilation` clusters, in the order in which their programs first
            ran. Only the latest 10,000 are kept.
        paddable_elements: Number of elements, including padding, of inputs that the host pads for
            `maximum_shapes` and a `padding_spec`, over all replicas and runs. Inputs padded with
            `enable_xla_dynamic_padder=False` are not counted.
        padding_elements: How many of them were padding.
        padded_inputs: The same numbers for each of these inputs.
    """

    clusters: tuple[Cluster, ...]
    paddable_elements: int
    padding_elements: int
    padded_inputs: tuple[PaddedInput, ...] = ()

    @property
    def padding_waste(self) -> float:
        """The fraction of `paddable_elements` that was padding, from 0.0 to 1.0.

        Example:
            >>> tf_tpu_ext.TransferStats((), paddable_elements=8, padding_elements=2).padding_waste
            0.25
        """
        return self.padding_elements / self.paddable_elements if self.paddable_elements else 0.0


def configure(
    cores: int | None = None,
    *,
    wait_limit_seconds: float | None = None,
    host_limit_seconds: float | None = None,
    sparse_cores: int | None = None,
    local_devices: bool | None = None,
    max_programs: int | None = None,
    max_program_bytes: int | None = None,
    compilation_cache: str | os.PathLike[str] | None = None,
    max_cache_bytes: int | None = None,
    target: str | Sequence[str] | None = None,
    options: Options | None = None,
    **switches: bool | str | None,
) -> Machine:
    """Configures this process's virtual TPU machine. Settings that you omit keep their values.

    `cores` and `local_devices` can change only before TensorFlow creates its devices, which happens
    in its first operation. For scripts that you can't change, set the environment variables
    `TF_TPU_EXT_CORES`, `TF_TPU_EXT_WAIT_LIMIT_SECONDS`, `TF_TPU_EXT_HOST_LIMIT_SECONDS`,
    `TF_TPU_EXT_SPARSE_CORES` and `TF_TPU_EXT_COMPILATION_CACHE` instead.

    Args:
        cores: Number of cores, from 1 to 1024. The default is 8, as on one Cloud TPU host. Each
            chip has two cores, or one if the number is odd.
        wait_limit_seconds: How many seconds a core may wait for other cores or for the host. A
            longer wait is an error that says who waits for what. The default is 1800.
        host_limit_seconds: How many seconds a worker that a program uses may give no sign of life,
            including while the program connects. After that, whatever waits for it fails. The
            default is 60. A lost connection is noticed immediately.
        sparse_cores: Number of SparseCores per core that the topology reports to programs that ask:
            1, 2 or 4. With 0, the default, the topology does not report the feature, and
            `TPUEmbeddingV2` divides tables for 4. Initialize the TPU system after changing it.
        local_devices: Whether this process has virtual cores. Pass False in a client that uses the
            cores of another process (a `grpc://` address). The default is True.
        max_programs: How many compiled programs are kept in memory, 1 or more. Beyond that, the
            least recently used ones are dropped as soon as nothing runs them, and recompiled if
            they are needed again. The default is 1024.
        max_program_bytes: The same for the approximate memory that they take in total. The default
            is 4 GiB.
        compilation_cache: A folder that keeps the machine code of programs compiled from now on,
            for this and later processes. It is created if it does not exist. Any number of
            processes may share it, and its files may be deleted at any time. Code is reused only
            with the same versions of TensorFlow and of this package, on the same kind of processor.
            An empty string keeps nothing. The default is `tf_tpu_ext/programs` in
            `$XDG_CACHE_HOME`, or in `~/.cache`, if nobody else may write there.
        max_cache_bytes: How large that folder may become. Beyond that, the least recently used
            files are removed. The default is 2 GiB.
        target: A real TPU, such as `v5e-8` or `v5e:2x4`, or several with the same number of cores.
            Its compiler checks each program compiled from now on (see `tf_tpu_ext.verdicts`), and
            the virtual TPU gets its number of cores and topology. An empty string ends that.
            Initialize the TPU system after changing it.
        options: The options of programs that are traced from now on (`fold_host_calls`,
            `launch_from_host`) or compiled from now on (all others). Programs traced inside `with
            Options(...)` use those instead. All options except `check` are True by default;
            `matmul_precision` is `"tpu"` with a target and `"full"` otherwise.
        **switches: Individual options by name, such as `stack_replicas=False`. They take precedence
            over `options`.

    Returns:
        The settings that are now in effect.

    Raises:
        ValueError: A setting is out of range, or the folder is not writable.
        TypeError: A setting has the wrong type, or there is no setting of that name.
        RuntimeError: TensorFlow has already created its devices with other settings.

    Example:
        >>> import tf_tpu_ext
        >>> tf_tpu_ext.configure(cores=2).mesh_shape
        (1, 1, 1, 2)
        >>> tf_tpu_ext.configure(stack_replicas=False).cores
        2

    For the topology, see https://www.tensorflow.org/api_docs/python/tf/tpu/experimental/Topology.
    """
    current = machine()
    targets = _targets(current, target)
    if targets and cores not in (None, targets[0].cores):
        raise ValueError(
            f"The target {targets[0].name} has {targets[0].cores} cores. Received: cores={cores!r}"
        )
    if targets:
        cores = targets[0].cores
    cores = current.cores if cores is None else cores
    limit = current.wait_limit_seconds if wait_limit_seconds is None else wait_limit_seconds
    host_limit = current.host_limit_seconds if host_limit_seconds is None else host_limit_seconds
    local = current.local_devices if local_devices is None else local_devices
    sparse = current.sparse_cores if sparse_cores is None else sparse_cores
    _check_int("cores", cores)
    _check_int("sparse_cores", sparse)
    for name, seconds in (("wait_limit_seconds", limit), ("host_limit_seconds", host_limit)):
        if not 0 < seconds < float("inf"):
            raise ValueError(
                f"`{name}` must be a positive, finite number. Received: {name}={seconds!r}"
            )
    programs = current.max_programs if max_programs is None else max_programs
    program_bytes = current.max_program_bytes if max_program_bytes is None else max_program_bytes
    _check_int("max_programs", programs)
    _check_int("max_program_bytes", program_bytes)
    cache_bytes = current.max_cache_bytes if max_cache_bytes is None else max_cache_bytes
    _check_int("max_cache_bytes", cache_bytes)
    wanted = _joined(options, switches)
    precision = wanted.matmul_precision or _chosen.matmul_precision
    wanted = wanted.over(Options(matmul_precision=precision or ("tpu" if targets else "full")))
    message = _native.text_of(
        "TfTpuExt_Configure",
        ctypes.c_int(cores),
        ctypes.c_int(local),
        ctypes.c_double(limit),
        ctypes.c_double(host_limit),
        ctypes.c_int(sparse),
        ctypes.c_int64(programs),
        ctypes.c_int64(program_bytes),
        ctypes.c_char_p(to_text(wanted).encode()),
        ctypes.c_char_p(None if compilation_cache is None else os.fsencode(compilation_cache)),
        ctypes.c_int64(cache_bytes),
        (ctypes.c_int * 4)(*(targets[0].mesh_shape if targets else ())),
        ctypes.c_int(bool(targets)),
    )
    if message is not None:
        raise (RuntimeError if "already created" in message else ValueError)(message)
    _chosen.matmul_precision = precision
    asker.use(targets)
    _native.refresh_physical_devices()
    return machine()


def _targets(current: Machine, target: str | Sequence[str] | None) -> tuple[Target, ...]:
    return verdict.parse_all(current.target if target is None else target)


def _check_int(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise ValueError(f"`{name}` must be an int. Received: {name}={value!r} ({type(value)})")


def _with_switches(signature: inspect.Signature) -> inspect.Signature:
    """Returns the signature of `configure` with every switch listed by name, for `help`."""
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


def _joined(options: Options | None, switches: dict[str, Any]) -> Options:
    names = [field.name for field in dataclasses.fields(Options)]
    unknown = sorted(set(switches) - set(names))
    if unknown:
        raise TypeError(
            f"configure got {', '.join(unknown)}, expected cores, wait_limit_seconds, "
            "host_limit_seconds, sparse_cores, local_devices, max_programs, max_program_bytes, "
            "compilation_cache, max_cache_bytes, target, options, or a switch of Options: "
            f"{', '.join(names)}."
        )
    return Options(**switches).over(options or Options())


def machine() -> Machine:
    """Returns the current settings of the machine.

    Example:
        >>> import tf_tpu_ext
        >>> tf_tpu_ext.machine().cores
        8
    """
    settings = _native.json_of("TfTpuExt_Machine")
    settings["mesh_shape"] = tuple(settings["mesh_shape"])
    for name in ("wait_limit_seconds", "host_limit_seconds"):
        settings[name] = float(settings[name])
    switches = [field.name for field in dataclasses.fields(Options)]
    options = from_switches({name: settings.pop(name) for name in switches})
    target = tuple(target.name for target in asker.targets)
    return Machine(**settings, target=target, options=options)


def is_virtual() -> bool:
    """Returns whether the TPU devices of this process are the virtual cores of this package.

    It is False if TensorFlow drives a real TPU, so that the package does nothing, and after
    `configure(local_devices=False)`.

    Example:
        >>> import tf_tpu_ext
        >>> tf_tpu_ext.is_virtual()
        True
    """
    return _native.is_loaded() and machine().local_devices


def transfer_stats() -> TransferStats:
    """Returns transfer statistics: the cost of `outside_compilation`, and padding.

    A cluster is listed once its program has run. Clusters that TensorFlow creates automatically
    under soft device placement are not listed.

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
    elements, padding = ctypes.c_int64(), ctypes.c_int64()
    _native.library().TfTpuExt_Padding(ctypes.byref(elements), ctypes.byref(padding))
    padded = _native.json_of("TfTpuExt_PaddedInputs")
    programs = _native.json_of("TfTpuExt_CompilationRecords") if padded else ()
    return TransferStats(
        tuple(Cluster(**record) for record in _native.json_of("TfTpuExt_ClusterRecords")),
        elements.value,
        padding.value,
        padded_inputs_of(padded, programs),
    )


def padded_inputs_of(
    records: Iterable[dict[str, Any]], programs: Iterable[dict[str, Any]]
) -> tuple[PaddedInput, ...]:
    """Returns the padded inputs, from the library's padding records and its compilation records."""
    arguments = {program["program_id"]: program["arguments"] for program in programs}
    return tuple(PaddedInput(name=_name_of(arguments, record), **record) for record in records)


def _name_of(arguments: Mapping[int, list[dict[str, Any]]], record: Mapping[str, int]) -> str:
    of_program = arguments.get(record["program_id"], [])
    number = record["argument"]
    return argument_name(of_program[number]["name"]) if number < len(of_program) else ""


def configure_from_environment() -> None:
    """Applies the environment variables that are set.

    Raises:
        ValueError: A variable is not a number, is out of range, or names a folder that is not
            writable.
    """
    cores = _number_variable(CORES_VARIABLE, int)
    limit = _number_variable(WAIT_LIMIT_VARIABLE, float)
    host_limit = _number_variable(HOST_LIMIT_VARIABLE, float)
    sparse_cores = _number_variable(SPARSE_CORES_VARIABLE, int)
    cache = os.environ.get(COMPILATION_CACHE_VARIABLE)
    if cache is None:
        _use_default_cache()
    if any(value is not None for value in (cores, limit, host_limit, sparse_cores, cache)):
        configure(
            cores,
            wait_limit_seconds=limit,
            host_limit_seconds=host_limit,
            sparse_cores=sparse_cores,
            compilation_cache=cache,
        )


def _use_default_cache() -> None:
    parent = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # Variables that are not absolute paths are invalid; without a home, there is no default.
    if os.path.isabs(parent):
        folder = os.path.join(parent, "tf_tpu_ext", "programs")
        _native.library().TfTpuExt_UseCacheLater(os.fsencode(folder))


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
