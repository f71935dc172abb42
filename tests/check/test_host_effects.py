"""Order of host calls, and races on the variables of the host."""

from __future__ import annotations

import pytest
import tensorflow as tf
from replicas import per_replica, replica_id
from watching import found_by, line_of

v1 = tf.compat.v1


def test_calls_of_cores_come_in_changing_orders(make_strategy):
    strategy = make_strategy(4)
    calls: list[tuple[int, int]] = []

    def note(replica, number):
        calls.append((int(replica), int(number)))

    @tf.function
    def run():
        def step():
            for number in range(4):
                v1.tpu.outside_compilation(
                    lambda replica, number=number: tf.py_function(note, [replica, number], []),
                    replica_id(),
                )

        strategy.run(step)

    orders = set()
    for _ in range(6):
        calls.clear()
        run()
        orders.add(tuple(calls))
        for replica in range(4):
            assert [number for each, number in calls if each == replica] == [0, 1, 2, 3]
    assert len(orders) > 1


def test_races(make_strategy):
    strategy = make_strategy(2)
    last = tf.Variable(0.0)
    count = tf.Variable(0.0)

    def host(x):
        last.assign(x)
        count.assign_add(1.0)
        return x + 1.0

    @tf.function
    def run(x):
        def step(x):
            return v1.tpu.outside_compilation(host, x)

        return strategy.run(step, args=(x,))

    [finding] = found_by(lambda: run(per_replica(strategy, [1.0, 2.0])))
    assert finding.kind == "race"
    assert finding.source == finding.other_source == line_of(host, "last.assign")
    # Sums come out right in any order.
    assert count.numpy() == 2.0


def test_race_of_a_read_in_a_loop(make_strategy):
    strategy = make_strategy(2)
    count = tf.Variable(0.0)

    def host(x):
        seen = count.read_value()
        count.assign_add(1.0)
        return x + seen

    @tf.function
    def run(x):
        def step(x):
            def body(i, x):
                return i + 1, v1.tpu.outside_compilation(host, x)

            return tf.while_loop(lambda i, x: i < 2, body, (0, x))[1]

        return strategy.run(step, args=(x,))

    [finding] = found_by(lambda: run(per_replica(strategy, [1.0, 2.0])))
    assert finding.kind == "race"
    assert finding.source == line_of(host, "assign_add")
    assert finding.other_source == line_of(host, "read_value")


def test_no_race_of_one_replica(make_strategy):
    strategy = make_strategy(1)
    last = tf.Variable(0.0)

    @tf.function
    def run(x):
        def step(x):
            v1.tpu.outside_compilation(last.assign, x)
            return x

        return strategy.run(step, args=(x,))

    assert found_by(lambda: run(per_replica(strategy, [3.0]))) == []
    assert last.numpy() == 3.0


def test_race_with_a_branch(make_strategy):
    strategy = make_strategy(2)
    best = tf.Variable(0.0)

    @tf.function
    def run(x):
        def step(x):
            def better():
                return v1.tpu.outside_compilation(keep, x)

            x = tf.cond(x > 1.5, better, lambda: x)
            return x + v1.tpu.outside_compilation(best.read_value)

        def keep(x):
            best.assign(x)
            return tf.identity(x)

        return strategy.run(step, args=(x,))

    [finding] = found_by(lambda: run(per_replica(strategy, [2.0, 1.0])))
    assert finding.kind == "race"
    assert finding.source == line_of(run.python_function, "best.assign(x)")
    assert finding.other_source == line_of(run.python_function, "best.read_value")
    assert best.numpy() == 2.0


def test_no_race_of_branches(make_strategy):
    strategy = make_strategy(2)
    last = tf.Variable(0.0)

    @tf.function
    def run(x):
        def step(x):
            def note(y):
                last.assign(y)
                return tf.identity(y)

            return tf.cond(
                replica_id() < 1,
                lambda: v1.tpu.outside_compilation(note, x),
                lambda: x,
            )

        return strategy.run(step, args=(x,))

    assert found_by(lambda: run(per_replica(strategy, [2.0, 1.0]))) == []
    assert last.numpy() == 2.0


def test_race_of_branches_that_several_replicas_take(make_strategy):
    strategy = make_strategy(4)
    last = tf.Variable(0.0)
    seen = tf.Variable(0.0)

    @tf.function
    def run(x, takers):
        def step(x):
            def note(y):
                last.assign(y)
                return tf.identity(y)

            def look(y):
                seen.assign_add(1.0)
                return y + last.read_value()

            return tf.cond(
                replica_id() < takers,
                lambda: v1.tpu.outside_compilation(note, x),
                lambda: v1.tpu.outside_compilation(look, x),
            )

        return strategy.run(step, args=(x,))

    def run_twice(takers):
        for _ in range(2):
            run(per_replica(strategy, [4.0, 3.0, 2.0, 1.0]), tf.constant(takers))

    assert found_by(lambda: run_twice(0)) == []
    [race_of_both] = found_by(lambda: run_twice(1))
    [race_of_one] = found_by(lambda: run_twice(2))
    assert seen.numpy() == 18.0
    write = line_of(run.python_function, "last.assign(y)")
    read = line_of(run.python_function, "last.read_value")
    for finding in (race_of_both, race_of_one):
        assert finding.kind == "race"
        assert finding.source == write
        assert finding.count == 2
    assert race_of_both.other_source == read
    assert race_of_both.step == 3
    assert race_of_one.other_source == write
    assert race_of_one.step == 5


def test_no_race_with_a_branch_before_a_sum(make_strategy):
    strategy = make_strategy(2)
    shared = tf.Variable(0.0)

    @tf.function
    def run(x):
        def step(x):
            def note(y):
                shared.assign(y)
                return tf.identity(y)

            x = tf.cond(replica_id() < 1, lambda: v1.tpu.outside_compilation(note, x), lambda: x)
            total = tf.distribute.get_replica_context().all_reduce("SUM", x)
            return v1.tpu.outside_compilation(lambda y: y + shared, total)

        return strategy.run(step, args=(x,))

    assert found_by(lambda: run(per_replica(strategy, [2.0, 1.0]))) == []


@pytest.mark.parametrize("control_flow", ["v1", "v2"])
@pytest.mark.parametrize("others", ["do nothing", "read", "take it"])
def test_race_with_a_branch_in_a_session(control_flow, others):
    def step(x):
        def keep(x):
            with tf.control_dependencies([best.assign(x)]):
                return tf.identity(x)

        x = v1.cond(x > 1.5, lambda: v1.tpu.outside_compilation(keep, x), lambda: x)
        return x + v1.tpu.outside_compilation(best.read_value) if others == "read" else x

    was_v2 = v1.control_flow_v2_enabled()
    (v1.enable_control_flow_v2 if control_flow == "v2" else v1.disable_control_flow_v2)()
    try:
        with tf.Graph().as_default(), v1.Session() as session:
            best = v1.get_variable("best", initializer=0.0, use_resource=True)
            feeds = [v1.placeholder(tf.float32, []) for _ in range(8)]
            results = v1.tpu.replicate(step, [[feed] for feed in feeds])

            def run():
                session.run([v1.tpu.initialize_system(), best.initializer])
                values = dict.fromkeys(feeds, 1.0)
                values[feeds[0]] = 2.0
                if others == "take it":
                    values[feeds[1]] = 2.0
                session.run(results, values)

            found = found_by(run)
    finally:
        (v1.enable_control_flow_v2 if was_v2 else v1.disable_control_flow_v2)()
    # Of the branches of TensorFlow 1's control flow, the graph doesn't tell who takes them.
    if others == "do nothing" or (others == "take it" and control_flow == "v1"):
        assert found == []
        return
    [finding] = found
    assert finding.kind == "race"
    assert finding.source == line_of(step, "best.assign(x)")
    other = "best.read_value" if others == "read" else "best.assign(x)"
    assert finding.other_source == line_of(step, other)
