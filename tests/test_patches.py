"""The changes to TensorFlow: what each does, that it can be undone, and that the docs list it."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import logging
import pathlib
import re
import threading
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.tpu.tpu_replication import TPUReplicateContext

from tf_tpu_ext import _native, patches

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs" / "patches.md"
NAMES = tuple(patch.name for patch in patches.PATCHES if patch.group == "tensorflow")
Resolver = tf.distribute.cluster_resolver.TPUClusterResolver
CLOUD_VARIABLES = (
    "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS",
    "TPU_API_DISCOVERY_URL",
    "TPU_CONFIG",
    "TPU_NAME",
)


@pytest.fixture(autouse=True)
def patched(tensorflow_patches, monkeypatch):
    del tensorflow_patches
    for variable in CLOUD_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    yield
    monkeypatch.undo()


def init_of(resolver: type) -> Any:
    return vars(resolver)["__init__"]


def stock_init() -> Any:
    patches.undo_all()
    stock = init_of(Resolver)
    patches.apply()
    return stock


# Applying and undoing.


def test_import_applies_every_patch(run_python):
    out = run_python(
        """
        import tf_tpu_ext
        from tf_tpu_ext import patches
        print(patches.applied())
        """
    ).stdout
    assert out.splitlines()[-1] == str(NAMES)


def test_names_are_unique_and_every_field_is_filled():
    assert len({patch.name for patch in patches.PATCHES}) == len(patches.PATCHES)
    for patch in patches.PATCHES:
        for field in dataclasses.fields(patch):
            assert getattr(patch, field.name), (patch.name, field.name)
        with pytest.raises(dataclasses.FrozenInstanceError):
            patch.name = "other"


def test_applying_twice_changes_nothing():
    assert patches.applied() == NAMES
    init = init_of(Resolver)
    patches.apply()
    assert patches.applied() == NAMES
    assert init_of(Resolver) is init


def test_undo_restores_the_very_objects():
    ours = init_of(Resolver)
    stock = ours.__wrapped__
    patches.undo_all()
    assert patches.applied() == ()
    assert init_of(Resolver) is stock
    assert not hasattr(stock, "__wrapped__")
    patches.undo_all()
    assert init_of(Resolver) is stock
    with pytest.raises(ValueError, match="TPU Name"):
        Resolver()

    patches.apply()
    assert patches.applied() == NAMES
    assert init_of(Resolver).__wrapped__ is stock


def test_undo_keeps_a_change_that_other_code_made_later():
    ours = init_of(Resolver)

    def other(self: Any, *args: Any, **kwargs: Any) -> None:
        ours(self, *args, **kwargs)

    Resolver.__init__ = other
    try:
        with pytest.raises(RuntimeError, match=r"TPUClusterResolver\.__init__ can't be restored"):
            patches.undo_all()
        assert init_of(Resolver) is other
        assert "cluster_resolver" in patches.applied()
    finally:
        Resolver.__init__ = ours
    patches.undo_all()
    assert patches.applied() == ()


def test_undo_takes_away_what_covers_an_inherited_method():
    ours = TPUReplicateContext.ExitResult
    patches.undo_all()
    assert "ExitResult" not in vars(TPUReplicateContext)
    assert TPUReplicateContext.ExitResult is ours.__wrapped__
    patches.apply()
    assert TPUReplicateContext.ExitResult.__wrapped__ is ours.__wrapped__


def test_undo_restores_all_places_of_a_patch_or_none(monkeypatch):
    ours = tf.config.experimental_connect_to_cluster
    monkeypatch.setattr(tf.compat.v1.config, "experimental_connect_to_cluster", print)
    with pytest.raises(RuntimeError, match="experimental_connect_to_cluster can't be restored"):
        patches.undo_all()
    assert "connect_to_cluster" in patches.applied()
    assert tf.config.experimental_connect_to_cluster is ours

    monkeypatch.undo()
    patches.undo_all()
    assert patches.applied() == ()
    for module in (tf.config, tf.compat.v1.config, tf.compat.v2.config):
        assert module.experimental_connect_to_cluster is ours.__wrapped__


def test_threads_may_apply_and_undo_at_once():
    stock = stock_init()
    start = threading.Barrier(8)
    failures: list[Exception] = []

    def work(apply_first: bool) -> None:
        start.wait()
        try:
            for turn in range(50):
                if (turn % 2 == 0) == apply_first:
                    patches.apply()
                else:
                    patches.undo_all()
                assert patches.applied() in ((), NAMES)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    patches.apply()
    assert init_of(Resolver).__wrapped__ is stock
    patches.undo_all()
    assert init_of(Resolver) is stock


def test_a_patch_that_does_not_fit_is_left_out_with_a_warning(monkeypatch):
    def refuse(changes: Any) -> None:
        del changes
        raise patches.UnavailableError("Expected a loop, got none.")

    patches.undo_all()
    first, *others = patches.PATCHES
    changed = (dataclasses.replace(first, install=refuse), *others)
    monkeypatch.setattr(patches, "PATCHES", changed)
    with pytest.warns(RuntimeWarning) as caught:
        patches.apply()
    assert patches.applied() == NAMES[1:]
    [warning] = caught
    for part in (first.target, first.name, first.reason, "Expected a loop, got none."):
        assert part in str(warning.message)
    assert warning.filename == __file__


def test_the_native_message_reaches_the_user(monkeypatch):
    patches.undo_all()
    monkeypatch.setattr(_native, "text_of", lambda function: "No loaded library calls it.")
    with pytest.warns(RuntimeWarning, match="No loaded library calls it"):
        patches.apply()
    assert patches.applied() == NAMES[:-1]


def test_nothing_changes_beside_a_real_tpu(monkeypatch):
    patches.undo_all()
    stock = init_of(Resolver)
    monkeypatch.setattr(_native, "load", lambda: False)
    patches.apply()
    assert patches.applied() == ()
    assert init_of(Resolver) is stock


# The resolver.


class NamedResolver(Resolver):
    """As programs extend it."""

    def __init__(self, team: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.team = team


LOCAL_ARGUMENTS = [
    ((), {}),
    ((None,), {}),
    (("",), {}),
    (("local",), {}),
    (("my-tpu",), {}),
    ((b"my-tpu",), {}),
    ((["my-tpu"],), {}),
    (("my-tpu", "us-central1-b", "my-project"), {}),
    ((), {"tpu": "my-tpu", "zone": "us-central1-b", "project": "my-project"}),
    ((), {"tpu": "", "credentials": None}),
    ((), {"tpu": "my-tpu", "credentials": object(), "service": None, "discovery_url": None}),
    ((), {"tpu": "my-tpu", "job_name": "tpu_worker"}),
    ((), {"tpu": "my-tpu", "coordinator_name": "coordinator"}),
    ((), {"coordinator_name": "coordinator", "coordinator_address": "10.0.0.9:2222"}),
]


def assert_local(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> None:
    cores = len(tf.config.list_logical_devices("TPU"))
    assert cores > 0
    assert isinstance(resolver, Resolver)
    assert resolver.master() == ""
    assert resolver.get_master() == ""
    assert resolver.cluster_spec() == tf.train.ClusterSpec({})
    assert not resolver.cluster_spec()
    assert resolver.environment == ""
    assert resolver.task_id == 0
    assert resolver.num_accelerators() == {"TPU": cores}
    metadata = resolver.get_tpu_system_metadata()
    assert isinstance(metadata, tf.tpu.experimental.TPUSystemMetadata)
    assert (metadata.num_cores, metadata.num_hosts) == (cores, 1)
    assert metadata.num_of_cores_per_host == cores
    assert copy.deepcopy(resolver) is resolver


@pytest.mark.parametrize(("args", "kwargs"), LOCAL_ARGUMENTS)
def test_resolves_to_this_machine(args, kwargs):
    resolver = Resolver(*args, **kwargs)
    assert_local(resolver)
    assert resolver.task_type == kwargs.get("job_name", "worker")
    assert resolver.get_job_name() == kwargs.get("job_name", "worker")


@pytest.mark.parametrize("name", ["my-tpu", "local"])
def test_the_environment_may_name_the_tpu(monkeypatch, name):
    monkeypatch.setenv("TPU_NAME", name)
    assert_local(Resolver())
    assert_local(Resolver(tpu=""))


@pytest.mark.parametrize(("tpu", "name"), [(None, "local"), ("my-tpu", "my-tpu"), (b"t", "t")])
def test_its_client_answers_for_a_tpu_that_is_ready(caplog, tpu, name):
    resolver = Resolver(tpu)
    client = resolver._cloud_tpu_client
    cores = len(tf.config.list_logical_devices("TPU"))
    with resolver:
        client.wait_for_healthy(timeout_s=0)
    assert client.name() == name
    assert (client.state(), client.health(), client.symptoms()) == ("READY", "HEALTHY", [])
    assert client.recoverable()
    assert not client.api_available()
    assert client.network_endpoints() == []
    assert client.accelerator_type() == f"v2-{cores}"
    assert client.get_local_ip() == "127.0.0.1"
    assert client.runtime_version() == tf.__version__
    with caplog.at_level(logging.INFO, logger="tf_tpu_ext"):
        client.configure_tpu_version(tf.__version__)
        assert not caplog.records
        client.configure_tpu_version("nightly", restart_type="ifNeeded")
    assert f"nightly was asked for on TPU '{name}'" in caplog.text
    assert tf.__version__ in caplog.text


def test_its_client_has_all_that_a_cloud_tpu_s_has():
    from tensorflow.python.tpu.client import client

    stock = {name for name in vars(client.Client) if not name.startswith("_")}
    assert stock <= set(dir(Resolver()._cloud_tpu_client))


def test_v1_is_the_same_class():
    v1 = tf.compat.v1.distribute.cluster_resolver.TPUClusterResolver
    assert v1 is Resolver
    assert_local(v1("my-tpu", zone="us-central1-b", project="my-project"))


def test_subclasses_resolve_too():
    resolver = NamedResolver("vision", tpu="my-tpu")
    assert resolver.team == "vision"
    assert_local(resolver)


def test_signature_and_documentation_are_tensorflow_s():
    stock = stock_init()
    assert inspect.signature(Resolver.__init__) == inspect.signature(stock)
    assert Resolver.__init__.__doc__ == stock.__doc__
    assert Resolver.__init__.__qualname__ == stock.__qualname__


def test_metadata_in_graph_mode():
    cores = len(tf.config.list_logical_devices("TPU"))
    with tf.Graph().as_default():
        assert Resolver("my-tpu").get_tpu_system_metadata().num_cores == cores


def test_connecting_to_this_machine_does_nothing():
    before = tf.config.list_logical_devices()
    tf.config.experimental_connect_to_cluster(Resolver("my-tpu"))
    assert tf.config.list_logical_devices() == before


def test_initializes_and_computes():
    resolver = Resolver("my-tpu")
    tf.config.experimental_connect_to_cluster(resolver)
    topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    cores = len(tf.config.list_logical_devices("TPU"))
    assert topology.num_tasks * topology.num_tpus_per_task == cores
    strategy = tf.distribute.TPUStrategy(resolver)
    assert strategy.num_replicas_in_sync == cores

    @tf.function
    def step() -> Any:
        return strategy.run(lambda: tf.constant(2.0) * tf.constant(3.0))

    total = strategy.reduce("SUM", step(), axis=None)
    assert float(total) == 6.0 * cores


@pytest.mark.parametrize("give", ["nothing", "connect"])
def test_the_short_ways(give):
    if give == "nothing":
        topology = tf.tpu.experimental.initialize_tpu_system()
        assert topology.num_tpus_per_task == len(tf.config.list_logical_devices("TPU"))
    else:
        assert_local(Resolver.connect("my-tpu", "us-central1-b", "my-project"))


# What leads elsewhere does so still.


def test_an_address_is_connected_to():
    resolver = Resolver("grpc://10.0.0.1:8470")
    assert resolver.master() == "grpc://10.0.0.1:8470"
    assert resolver.cluster_spec().as_dict() == {"worker": ["10.0.0.1:8470"]}


def test_the_environment_may_hold_an_address(monkeypatch):
    monkeypatch.setenv("TPU_NAME", "grpc://10.0.0.2:8470")
    assert Resolver().master() == "grpc://10.0.0.2:8470"
    assert_local(Resolver("local"))


def test_gke_is_followed(monkeypatch):
    monkeypatch.setenv("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "grpc://10.0.0.3:8470")
    assert Resolver().master() == "grpc://10.0.0.3:8470"


class CloudService:
    """As much of the Cloud TPU API as TensorFlow asks for one node."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def projects(self) -> CloudService:
        return self

    locations = nodes = projects

    def get(self, name: str) -> CloudService:
        self.asked.append(name)
        return self

    def execute(self) -> dict[str, Any]:
        endpoint = {"ipAddress": "10.0.0.4", "port": "8470"}
        return {"state": "READY", "health": "HEALTHY", "networkEndpoints": [endpoint]}


def test_a_cloud_service_is_asked():
    service = CloudService()
    resolver = Resolver("my-tpu", "us-central1-b", "my-project", service=service)
    assert resolver.master() == "grpc://10.0.0.4:8470"
    assert set(service.asked) == {"projects/my-project/locations/us-central1-b/nodes/my-tpu"}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TPU_CONFIG", json.dumps({"tpu_node_name": "n", "project": "p", "zone": "z"})),
        ("TPU_API_DISCOVERY_URL", "https://example.com/{api}/{apiVersion}"),
    ],
)
def test_a_cloud_environment_is_followed(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    resolver = Resolver(None if variable == "TPU_CONFIG" else "n", zone="z", project="p")
    assert resolver._tpu == "n"
    assert_local(Resolver("local"))


def test_a_discovery_url_is_followed():
    resolver = Resolver("n", zone="z", project="p", discovery_url="https://example.com/{api}")
    assert resolver._tpu == "n"


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "message"),
    [
        (([],), {}, ValueError, "At least one TPU"),
        ((["a", "b"],), {}, NotImplementedError, "multiple TPUs"),
        ((), {"color": "red"}, TypeError, r"__init__\(\) got an unexpected keyword.*'color'"),
    ],
)
def test_tensorflow_s_own_errors_stay(args, kwargs, error, message):
    with pytest.raises(error, match=message):
        Resolver(*args, **kwargs)


# The documentation.


def documented() -> list[dict[str, str]]:
    """Reads the sections of the docs: a heading with the name, then `- Label: text` items."""
    sections = []
    for section in re.split(r"^### ", DOCS.read_text(), flags=re.MULTILINE)[1:]:
        heading, body = section.split("\n", 1)
        fields = {"name": heading.strip().strip("`")}
        body = re.split(r"^## ", body, flags=re.MULTILINE)[0]
        for item in re.split(r"^- ", body, flags=re.MULTILINE)[1:]:
            label, text = item.split(":", 1)
            fields[label.lower()] = " ".join(text.split())
        sections.append(fields)
    return sections


def test_the_docs_list_the_same_patches():
    expected = [
        {
            "name": patch.name,
            "target": f"`{patch.target}`",
            "change": patch.change,
            "reason": patch.reason[0].upper() + patch.reason[1:],
        }
        for patch in patches.PATCHES
    ]
    assert documented() == expected


def test_the_docs_say_how_to_undo():
    assert "patches.undo_all()" in DOCS.read_text()


def test_connecting_to_this_machine_in_a_graph_does_nothing():
    with tf.Graph().as_default():
        tf.config.experimental_connect_to_cluster(Resolver())
        with pytest.raises(ValueError, match="eager"):
            tf.config.experimental_connect_to_cluster(
                tf.train.ClusterSpec({"worker": ["localhost:0"]})
            )


def test_libraries_that_do_not_load_say_why(patched, tmp_path):
    del patched
    for name in ("libtensorflow_io.so", "libother.so"):
        (tmp_path / name).write_text("not a library")
    for load in (tf.load_op_library, tf.compat.v1.load_op_library):
        with pytest.raises(NotImplementedError, match=r"tensorflow-io 0\.37\.1 beside TensorFlow"):
            load(str(tmp_path / "libtensorflow_io.so"))
        with pytest.raises(tf.errors.NotFoundError, match="libother"):
            load(str(tmp_path / "libother.so"))
