"""What Google's TPU compiler says of programs: asked for real, without a TPU."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.compiler.xla.experimental import xla_sharding
from tensorflow.python.tpu import tpu as stock_tpu
from tensorflow.python.tpu.ops import tpu_ops
from verdicts import HAS_LIBTPU, compiled_only, needs_libtpu, own_cache, tf_tpu_check  # noqa: F401

import tf_tpu_ext
from tf_tpu_ext.verdict import Answer, Note, _cache, _compiler, _judging, _table, _targets


def check(computation, inputs, target="v5e-8"):
    """What the compiler says of a computation of one replica that is run."""
    with tf_tpu_ext.compile_for(target) as checked:
        tf_tpu_ext.tpu.rewrite(computation, inputs)
    [verdict] = checked.verdicts()
    return verdict


def check_compiled_only(computation, shape, target="v5e-8"):
    """The same of one that is compiled and does not run: it would take too much memory here."""
    with tf_tpu_ext.compile_for(target) as checked, tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, shape)
        compiled, _ = stock_tpu.split_compile_and_replicate(computation, [[x]])
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.tpu.initialize_system())
            session.run(compiled)
    [verdict] = checked.verdicts()
    return verdict


@pytest.mark.parametrize(
    ("name", "topology", "mesh"),
    [
        ("v2-8", "v2:2x2", (2, 2, 1, 2)),
        ("v3-32", "v3:4x4", (4, 4, 1, 2)),
        ("v4-8", "v4:2x2x1", (2, 2, 1, 1)),
        ("v4-32", "v4:2x2x4", (2, 2, 4, 1)),
        ("v5e-1", "v5e:1x1", (1, 1, 1, 1)),
        ("v5e-8", "v5e:2x4", (2, 4, 1, 1)),
        ("v5litepod-16", "v5e:4x4", (4, 4, 1, 1)),
        ("v5p-8", "v5p:2x2x1", (2, 2, 1, 1)),
        ("v5p-128", "v5p:4x4x4", (4, 4, 4, 1)),
        ("v6e:2x2", "v6e:2x2", (2, 2, 1, 1)),
        ("tpu7x-8", "tpu7x:2x2x1", (2, 2, 1, 2)),
    ],
)
def test_names_of_targets(name, topology, mesh):
    target = _targets.parse(name)
    assert target.topology == topology
    assert target.mesh_shape == mesh
    assert target.cores == np.prod(mesh)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("v9-8", "names no TPU. Expected a generation"),
        ("v5e", "names no TPU"),
        ("v5e-3", "Expected one of v5e-1, v5e-4, v5e-8"),
        ("v4-1", "no TPU slice v4-1"),
        ("v5e:2x2x1", "form 2 dimensions"),
        ("v5e:0x2", "1 or more"),
        ("v5e:64x64", "at most 1024"),
    ],
)
def test_wrong_names(name, words):
    with pytest.raises(ValueError, match=words):
        tf_tpu_ext.configure(target=name)
    assert tf_tpu_ext.machine().target == ()


def test_targets_of_different_sizes():
    with pytest.raises(ValueError, match="v5e-8 has 8, v5e-4 has 4"):
        tf_tpu_ext.configure(target=["v5e-8", "v5e-4"])


def test_target_and_another_number_of_cores():
    with pytest.raises(ValueError, match=r"v5e-8 has 8 cores\. Received: cores=4"):
        tf_tpu_ext.configure(4, target="v5e-8")


def test_the_machine_has_the_shape_of_the_target():
    before = tf_tpu_ext.machine().mesh_shape
    with tf_tpu_ext.compile_for("v5e-8"):
        assert tf_tpu_ext.machine().mesh_shape == (2, 4, 1, 1)
        assert tf_tpu_ext.machine().target == ("v5e-8",)
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
        assert list(topology.mesh_shape) == [2, 4, 1, 1]
    assert tf_tpu_ext.machine().mesh_shape == before
    assert tf_tpu_ext.machine().target == ()


@needs_libtpu
def test_memory_is_what_arithmetic_says():
    verdict = check(lambda x, y: tf.matmul(x, y), [tf.ones([1024, 512]), tf.ones([512, 256])])
    assert verdict.ok, verdict
    assert verdict.memory.arguments == 4 * (1024 * 512 + 512 * 256)
    # The result, in a tuple of one pointer whose table is in tiles as well.
    assert 0 <= verdict.memory.results - 4 * 1024 * 256 <= 4096
    assert verdict.memory.available == pytest.approx(15.75 * 2**30, rel=0.01)
    assert verdict.cost.flops == pytest.approx(2 * 1024 * 512 * 256, rel=0.05)
    assert verdict.cost.seconds is None or 1e-7 < verdict.cost.seconds < 1e-2


@needs_libtpu
def test_step_of_a_strategy_updates_its_variables_in_place_and_has_collectives(make_strategy):
    with tf_tpu_ext.compile_for("v5e-8") as checked:
        strategy = make_strategy(8)
        with strategy.scope():
            variable = tf.Variable(tf.ones([512, 128]))

        @tf.function
        def step():
            def replica():
                x = tf.ones([8, 512])
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.matmul(x, variable) ** 2)
                gradient = tape.gradient(loss, variable)
                total = tf.distribute.get_replica_context().all_reduce("sum", gradient)
                variable.assign_sub(0.1 * total)

            strategy.run(replica)

        step()
    verdict = next(v for v in checked.verdicts() if v.num_replicas == 8)
    assert verdict.ok, verdict
    assert verdict.memory.variables == 4 * 512 * 128
    assert verdict.cost.collectives >= 1
    assert verdict.cost.collective_bytes >= 4 * 512 * 128


@needs_libtpu
def test_out_of_memory_names_the_largest_tensors_with_their_lines():
    def computation(x):
        scores = tf.matmul(x, x, transpose_b=True, name="scores")
        return tf.reduce_sum(tf.sort(scores) * tf.nn.softmax(scores))

    verdict = check_compiled_only(computation, [60000, 64])
    assert verdict.answer is Answer.OUT_OF_MEMORY
    assert "exceeds available HBM" in verdict.error
    assert "bfloat16" in verdict.advice
    assert verdict.largest[0].bytes == 4 * 60000**2
    assert any("scores" in buffer.op for buffer in verdict.largest), verdict.largest
    text = _table.to_text([verdict])
    assert "0 of 1 programs compile and fit" in text
    assert "large: 13.4 GiB f32[60000,60000]" in text


@needs_libtpu
def test_emulated_types_and_host_calls_in_loops_are_noted():
    def computation(x):
        def body(i, y):
            on_host = tf_tpu_ext.tpu.outside_compilation(tf.sin, y)
            return i + 1, tf.ensure_shape(on_host, [8])

        _, y = tf.while_loop(lambda i, _: i < 3, body, [0, x])
        return tf.cast(y, tf.float64) * 2.0

    verdict = check(computation, [tf.ones([8])])
    assert verdict.ok, verdict
    kinds = {note.kind: note for note in verdict.notes}
    assert kinds["emulated"].what == "float64"
    assert "host call in a loop" in kinds
    text = _table.to_text([verdict])
    assert "emulated: float64, " in text
    assert "use float32" in text
    assert "host call in a loop, 2 instructions" in text
    assert "call the host once after the loop" in text


def test_of_many_notes_of_a_kind_some_are_shown():
    notes = tuple(Note("small product", f"f32[{n}]", 1, "MatMul", "a.py:1") for n in range(1, 9))
    notes += (Note("dynamic", "f32[<=8]", 2, "", ""),)
    verdict = tf_tpu_ext.Verdict("v5e-8", "step", 1, "", 1, 1, Answer.NOT_ASKED, notes=notes)
    lines = _table.to_text([verdict]).splitlines()
    assert sum(line.startswith("  small product: ") for line in lines) == 5
    assert "  3 more notes on small products" in lines
    assert any(line.startswith("  dynamic: f32[<=8], 2 instructions") for line in lines)


@needs_libtpu
def test_random_numbers_are_of_the_generator_that_tensorflow_asks_for(monkeypatch):
    asked = []
    judge = _judging.judge
    monkeypatch.setattr(
        _judging,
        "judge",
        lambda answer, module, *rest: asked.append(module) or judge(answer, module, *rest),
    )

    def computation():
        chosen = tf.random.stateless_uniform([8, 128], [1, 2], alg="auto_select")
        return tf.random.uniform([8, 128]), chosen

    verdict = check(computation, [])
    assert verdict.ok, verdict
    generators = [
        (instruction.opcode, instruction.rng_algorithm)
        for computation in asked[0].computations
        for instruction in computation.instructions
        if instruction.opcode.startswith("rng")
    ]
    # The default algorithm of XLA is that of the chip's own generator.
    assert sorted(generators) == [("rng", 0), ("rng-bit-generator", 0)]


@needs_libtpu
def test_time_of_which_a_part_is_unknown():
    def computation(x):
        return tf.linalg.qr(tf.matmul(x, x), name="decomposition")

    verdict = check(computation, [tf.ones([256, 256])])
    assert verdict.cost.untimed >= 1
    assert verdict.cost.peak_share is None
    # Reading and writing takes at least so long.
    assert 4 * 256**2 / 819e9 < verdict.cost.seconds < 0.1
    call = next(call for call in verdict.cost.untimed_calls if "QrDecomposition" in call)
    assert f" at {__file__}:" in call
    text = _table.to_text([verdict])
    assert " over " in text
    assert f"time unknown: {call}" in text


@needs_libtpu
@pytest.mark.usefixtures("compiled_only")
@pytest.mark.parametrize(
    ("computation", "dtype", "length"),
    [
        # Of complex numbers and of 64 bits, the compiler takes the halves apart. It unrolls a
        # Fourier transform, which takes it half a minute for a length of 2,048.
        (lambda x: tf.signal.fft(x), tf.complex64, 32),
        (lambda x: x + 1, tf.int64, 2048),
        (lambda x: tf.sort(x), tf.float32, 2048),
    ],
)
def test_time_is_known_where_instructions_only_rename(computation, dtype, length):
    elements = 2048**2
    verdict = check(computation, [tf.ones([elements // length, length], dtype)])
    assert verdict.cost.untimed == 0
    assert verdict.cost.untimed_calls == ()
    # At the memory's rate it takes as long to read and to write it once.
    once = 2 * dtype.size * elements / 819e9
    assert 0.5 * once < verdict.cost.seconds < 100 * once
    assert verdict.cost.peak_share is not None
    assert " over " not in _table.to_text([verdict])


@needs_libtpu
def test_dynamic_sizes_are_noted():
    verdict = check(lambda x: tf.where(x > 0.0), [tf.ones([16, 16])])
    assert verdict.ok, verdict
    [note] = [note for note in verdict.notes if note.kind == "dynamic"]
    assert note.what == "s64[<=256,2]"
    assert note.op == "Where"
    assert "drop_remainder=True" in note.advice


@needs_libtpu
@pytest.mark.usefixtures("compiled_only")
@pytest.mark.parametrize(
    ("bound", "computation", "shape"),
    [
        ("compute", lambda x: tf.matmul(tf.matmul(x, x), x), [4096, 4096]),
        ("memory", lambda x: x + 1.0, [4096, 4096]),
        ("interconnect", tf.compat.v1.tpu.cross_replica_sum, [2048, 2048]),
    ],
)
def test_what_takes_longest(bound, computation, shape):
    inputs = [[tf.ones(shape)]] * 8 if bound == "interconnect" else [[tf.ones(shape)]]
    with tf_tpu_ext.compile_for("v5e-8") as checked:
        tf_tpu_ext.tpu.replicate(computation, inputs)
    [verdict] = checked.verdicts()
    assert verdict.ok, verdict
    assert verdict.cost.bound == bound, verdict.cost
    if bound == "interconnect":
        assert verdict.cost.collectives == 1
        assert verdict.cost.collective_bytes == 4 * np.prod(shape)


@needs_libtpu
def test_every_generation():
    names = ["v2-8", "v3-8", "v4-16", "v5e-8", "v5p-16", "v6e-8", "7x-8"]
    with tf_tpu_ext.compile_for(names) as checked:
        tf_tpu_ext.tpu.rewrite(tf.linalg.matmul, [tf.ones([256, 256]), tf.ones([256, 256])])
    assert [verdict.target for verdict in checked.verdicts()] == names
    assert all(verdict.ok for verdict in checked.verdicts()), checked.verdicts()
    gibibytes = [round(verdict.memory.available / 2**30) for verdict in checked.verdicts()]
    assert gibibytes == [7, 15, 31, 16, 96, 31, 95]


@needs_libtpu
def test_infeed_and_outfeed():
    def computation(x):
        [dequeued] = tpu_ops.infeed_dequeue_tuple([tf.float32], [[8]])
        tpu_ops.outfeed_enqueue_tuple([dequeued + tf.reduce_sum(x)])
        return dequeued

    verdict = check_compiled_only(computation, [4])
    assert verdict.ok, verdict
    assert verdict.not_asked == ""


@needs_libtpu
def test_spmd_programs_have_their_partitions():
    with tf_tpu_ext.compile_for("v5e-8") as checked:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
        assignment = tf.tpu.experimental.DeviceAssignment.build(
            topology, computation_shape=[2, 4, 1, 1], num_replicas=1
        )

        def computation(x):
            return xla_sharding.split(x, 0, 8, use_sharding_op=True) * 2.0

        tf_tpu_ext.tpu.replicate(
            computation,
            [[tf.ones([64, 1024])]],
            device_assignment=assignment,
            xla_options=tf.compat.v1.tpu.XLAOptions(use_spmd_for_xla_partitioning=True),
        )
    [verdict] = checked.verdicts()
    assert verdict.ok, verdict
    assert verdict.num_cores_per_replica == 8


@needs_libtpu
def test_function_of_one_core_knows_its_variables():
    with tf_tpu_ext.compile_for("v5e-8") as checked, tf.device("TPU:0"):
        variable = tf.Variable(tf.ones([1024]))

        @tf.function(jit_compile=True)
        def update():
            variable.assign_add(variable * 2.0)

        update()
    [verdict] = checked.verdicts()
    assert verdict.ok, verdict
    assert verdict.memory.variables == 4 * 1024


@needs_libtpu
def test_several_targets_and_kept_answers():
    def computation(x):
        return tf.tan(x)

    with tf_tpu_ext.compile_for(["v5e-8", "v3-8"]) as first:
        tf_tpu_ext.tpu.rewrite(computation, [tf.ones([16, 128])])
    assert [verdict.target for verdict in first.verdicts()] == ["v5e-8", "v3-8"]
    assert all(verdict.ok and not verdict.cached for verdict in first.verdicts())
    with tf_tpu_ext.compile_for("v3-8") as second:
        tf_tpu_ext.tpu.rewrite(lambda x: computation(x), [tf.ones([16, 128])])
    [kept] = second.verdicts()
    assert kept.cached
    assert kept.memory == first.verdicts()[1].memory


def test_missing_compiler_is_one_line(monkeypatch, caplog):
    monkeypatch.setattr(_compiler.importlib.util, "find_spec", lambda name: None)
    with tf_tpu_ext.compile_for("v5e-8") as checked:
        [result] = tf_tpu_ext.tpu.rewrite(lambda x: x * 3.0, [tf.ones([2])])
    np.testing.assert_array_equal(result, [3.0, 3.0])
    [verdict] = checked.verdicts()
    assert verdict.answer is Answer.NOT_ASKED
    assert "pip install libtpu" in verdict.error
    [record] = [r for r in caplog.records if "not checked" in r.message]
    assert "pip install libtpu" in record.message


def question(tmp_path):
    files = _compiler.Files(*(tmp_path / name for name in ("module", "options", "optimized")))
    files.module.write_bytes(b"")
    files.options.write_bytes(b"")
    return files


def test_a_compiler_that_can_not_be_loaded(tmp_path):
    from tf_tpu_ext.verdict import _asking

    compiler = _compiler.Compiler(tmp_path / "libtpu.so", _asking._libraries(), 100.0)
    try:
        answer = compiler.ask("v5e:2x4", "", question(tmp_path))
    finally:
        compiler.close()
    assert "libtpu.so can't be loaded" in answer["error"]
    assert "devices" not in answer


def test_a_compiler_that_ends_and_one_that_is_late(tmp_path):
    crashing = _compiler.Compiler(tmp_path / "libtpu.so", [str(tmp_path / "absent.so")], 100.0)
    with pytest.raises(_compiler.UnavailableError, match=r"has crashed .*absent\.so"):
        crashing.ask("v5e:2x4", "", question(tmp_path))
    late = _compiler.Compiler(tmp_path / "libtpu.so", [], 0.001)
    with pytest.raises(_compiler.UnavailableError, match=r"did not answer within 0\.001 s"):
        late.ask("v5e:2x4", "", question(tmp_path))


def test_damaged_answers_are_asked_for_again(tmp_path):
    cache = _cache.Cache(tmp_path)
    assert cache.get("name") is None
    cache.put("name", {"answer": Answer.FITS})
    assert cache.get("name")["answer"] is Answer.FITS
    (tmp_path / "name.json").write_text("{")
    assert cache.get("name") is None


@needs_libtpu
def test_command(tmp_path):
    report = tmp_path / "verdicts.json"
    code = """
import sys
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="any")
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
print(strategy.num_replicas_in_sync, sys.argv[1:])
strategy.run(tf.function(lambda: tf.matmul(tf.ones([8, 8]), tf.ones([8, 8]))))
"""
    (tmp_path / "script.py").write_text(code)
    options = ("--target", "v5e-4", "--json", str(report))
    done = tf_tpu_check(tmp_path, *options, "script.py", "argument")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "4 ['argument']\n"
    assert "1 of 1 programs compile and fit" in done.stderr
    [verdict] = json.loads(report.read_text())
    assert verdict["ok"]
    assert verdict["num_replicas"] == 4
    assert verdict["memory"]["left"] > 0


def test_command_that_can_not_start(tmp_path):
    (tmp_path / "script.py").write_text("print('ran')")
    done = tf_tpu_check(tmp_path, "--target", "v5e-7", "script.py")
    assert done.returncode == 2
    assert done.stdout == ""
    expected = "There is no TPU slice v5e-7"
    if not HAS_LIBTPU:
        expected = "pip install libtpu"
    assert expected in done.stderr
