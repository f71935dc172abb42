"""What the TPU compiler says about a program, as typed records."""

from __future__ import annotations

import dataclasses
import enum

from tf_tpu_ext.verdict import _advice


class Answer(str, enum.Enum):
    """Whether a program would run on the target.

    Example:
        >>> from tf_tpu_ext import verdict
        >>> verdict.Answer.OUT_OF_MEMORY.value
        'out of memory'
    """

    FITS = "fits"
    OUT_OF_MEMORY = "out of memory"
    REFUSED = "refused"
    NOT_ASKED = "not asked"


@dataclasses.dataclass(frozen=True)
class Memory:
    """The memory of one core, in bytes.

    Attributes:
        arguments: The program's arguments, including variables.
        variables: Arguments whose memory the results take over: variables that are updated.
        results: The results, including updated variables.
        temporaries: What the program needs while it runs.
        code: The program itself.
        available: What the core has available for programs.
        padding: How much of the arguments and results is padding for the chip's tiles.

    Example:
        >>> from tf_tpu_ext import verdict
        >>> memory = verdict.Memory(100, 40, 60, 10, 5, available=200)
        >>> print(memory.needed, memory.left)
        135 65
    """

    arguments: int
    variables: int
    results: int
    temporaries: int
    code: int
    available: int
    padding: int = 0

    @property
    def needed(self) -> int:
        """The total that the program needs; memory that results take over counts once.

        Example:
            >>> from tf_tpu_ext import verdict
            >>> verdict.Memory(100, 40, 60, 10, 5, available=200).needed
            135
        """
        both = self.arguments + self.results - self.variables
        return both + self.temporaries + self.code

    @property
    def left(self) -> int:
        """What is left of the core's memory; negative if the program does not fit.

        Example:
            >>> from tf_tpu_ext import verdict
            >>> verdict.Memory(100, 40, 60, 10, 5, available=100).left
            -35
        """
        return self.available - self.needed


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one run of a program costs on one core, according to the compiler's estimate.

    Attributes:
        flops: Number of floating-point operations.
        bytes_accessed: Bytes read and written.
        seconds: The expected time, excluding untimed instructions; None if unknown.
        collective_bytes: Bytes that collectives combine or move in one pass through the program.
        collectives: Number of collectives.
        peak_share: Operations per second as a share of the core's peak in bfloat16; None if the
            time is unknown, or known for only some instructions.
        bound: What takes longest at the core's peak rates: `compute`, `memory`, or `interconnect`,
            which collectives use.
        padding_bytes: Bytes of padding that one pass through the program reads and writes.
        padding_seconds: The time it takes to read and write them at the memory's peak rate.
        untimed: Number of instructions whose time the compiler does not report: kernels of its own,
            such as the one for a QR decomposition.
        untimed_calls: Descriptions of some of them, with TensorFlow op and Python line.

    Example:
        >>> from tf_tpu_ext import verdict
        >>> cost = verdict.Cost(2e9, 1e6, 2e-5, 0, 0, peak_share=0.5, bound="compute")
        >>> print(cost.peak_share, cost.bound)
        0.5 compute
    """

    flops: float
    bytes_accessed: float
    seconds: float | None
    collective_bytes: int
    collectives: int
    peak_share: float | None
    bound: str
    padding_bytes: int = 0
    padding_seconds: float = 0.0
    untimed: int = 0
    untimed_calls: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A tensor in the core's memory.

    Attributes:
        shape: Type and shape, such as `f32[128,1]`.
        bytes: The number of bytes that it takes.
        padding: How many of these bytes only fill up the core's tiles.
        op: The TensorFlow op that it belongs to; empty if unknown.
        source: The Python line of that op, as `file:line`; empty if unknown.

    Example:
        >>> from tf_tpu_ext import verdict
        >>> buffer = verdict.Buffer("f32[1024,1]", 524288, 520192, "MatMul", "train.py:12")
        >>> buffer.padding / buffer.bytes
        0.9921875
    """

    shape: str
    bytes: int
    padding: int
    op: str
    source: str


@dataclasses.dataclass(frozen=True)
class Note:
    """Something in a program that a TPU is slow at, or does differently.

    Attributes:
        kind: `emulated` (a type that a TPU computes in several steps), `dynamic` (a size that is
            unknown when the program is compiled), `host call in a loop`, or `small product` (one
            that leaves most of a matrix unit idle).
        what: The type or shape; empty for calls.
        count: The number of instructions concerned.
        op: The TensorFlow op of the first of them; empty if unknown.
        source: Its Python line, as `file:line`; empty if unknown.

    Example:
        >>> from tf_tpu_ext import verdict
        >>> verdict.Note("emulated", "float64", 3, "Cast", "train.py:12").what
        'float64'
    """

    kind: str
    what: str
    count: int
    op: str
    source: str

    @property
    def advice(self) -> str:
        """What to write instead.

        Example:
            >>> from tf_tpu_ext import verdict
            >>> verdict.Note("emulated", "float64", 3, "Cast", "train.py:12").advice
            'use float32'
        """
        return _advice.on_note(self.kind, self.what)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a real TPU's compiler says about one program.

    Attributes:
        target: The name of the target, such as `v5e-8`.
        program: The program's name.
        program_id: Its number, as in `compilation_stats()`.
        argument_shapes: The shapes of its arguments, separated by semicolons.
        num_replicas: Number of replicas.
        num_cores_per_replica: Number of cores per replica.
        answer: Whether it would run there.
        error: The compiler's own words if it would not, or why it was not asked; otherwise empty.
        op: The TensorFlow op that the error names; empty if it names none.
        source: The Python line of that op, as `file:line`; empty if unknown.
        advice: What to write instead; empty if unknown.
        not_asked: The part of the program that the compiler was not asked about; empty if none.
        memory: The memory of a core, or None if the program does not compile.
        cost: What one run costs, or None if the program does not compile.
        largest: The largest tensors, largest first: for a program that is out of memory, of all
            that the compiler lists, otherwise of arguments, results and instructions.
        padded: The tensors with the most padding, worst first.
        notes: What a TPU is slow at.
        seconds: How long the compiler took.
        cached: Whether the answer comes from an earlier question.

    Example:
        >>> import tensorflow as tf
        >>> import tf_tpu_ext
        >>> with tf_tpu_ext.compile_for("v3-8") as check:
        ...     _ = tf_tpu_ext.tpu.rewrite(tf.exp, [tf.ones([8])])
        >>> [verdict] = check.verdicts()
        >>> print(verdict.argument_shapes, verdict.num_cores_per_replica)
        [8] 1
    """

    target: str
    program: str
    program_id: int
    argument_shapes: str
    num_replicas: int
    num_cores_per_replica: int
    answer: Answer
    error: str = ""
    op: str = ""
    source: str = ""
    advice: str = ""
    not_asked: str = ""
    memory: Memory | None = None
    cost: Cost | None = None
    largest: tuple[Buffer, ...] = ()
    padded: tuple[Buffer, ...] = ()
    notes: tuple[Note, ...] = ()
    seconds: float = 0.0
    cached: bool = False

    @property
    def ok(self) -> bool:
        """Whether the program compiles and fits.

        Example:
            >>> import tf_tpu_ext
            >>> all(verdict.ok for verdict in tf_tpu_ext.verdicts())
            True
        """
        return self.answer is Answer.FITS
