"""`TPUClusterResolver` finds the virtual cores where it would look for a TPU, and only there."""

from __future__ import annotations

import copy
import inspect
import itertools
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tf_tpu_ext import patches

Resolver = tf.distribute.cluster_resolver.TPUClusterResolver
CLOUD_VARIABLES = (
    "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS",
    "TPU_API_DISCOVERY_URL",
    "TPU_CONFIG",
    "TPU_NAME",
)


@pytest.fixture(autouse=True)
def outside_of_a_cloud(tensorflow_patches, monkeypatch):
    del tensorflow_patches
    for variable in CLOUD_VARIABLES:
        monkeypatch.delenv(variable, raising=False)


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
    ((), {"tpu": "my-tpu", "job_name": "worker"}),
    ((), {"job_name": "tpu_worker"}),
    ((), {"tpu": "local", "job_name": "tpu_worker"}),
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


def test_a_job_of_the_caller_has_one_host():
    resolver = Resolver("my-tpu", job_name="trainer")
    assert resolver.cluster_spec().as_dict() == {"trainer": ["localhost:8470"]}
    # Nothing to connect to, with eager execution.
    assert resolver.master() == ""
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    total = strategy.run(tf.function(lambda: tf.constant(2.0)))
    assert float(strategy.reduce("SUM", total, axis=None)) == 2.0 * strategy.num_replicas_in_sync


def _doubled(x: tf.Tensor, device: Callable[[str], Any], name: str) -> tf.Tensor:
    @tf.function
    def doubled(x: tf.Tensor) -> tf.Tensor:
        with device(name):
            return x + x

    return doubled(x)


@pytest.mark.parametrize("job", ["worker", "trainer"])
def test_device_names_may_have_the_job(job):
    resolver = Resolver("my-tpu", job_name=job)
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    # The second form is what tf.DeviceSpec and placers make.
    names = [f"/job:{job}/device:CPU:0", f"/job:{job}/replica:0/task:0/device:TPU:0"]
    for device, name in itertools.product((tf.device, tf.compat.v1.device), names):
        with device(name):
            one = tf.constant(1.0) * 1.0
        assert one.device.endswith(name[name.index("/device") :])
        assert float(_doubled(one, device, name)) == 2.0
    unknown = pytest.raises(tf.errors.InvalidArgumentError, match=r"task:1.* unknown device")
    with unknown, tf.device(f"/job:{job}/task:1"):
        tf.constant(1.0)
    # Sessions know this process by its own name.
    with tf.Graph().as_default(), tf.device(f"/job:{job}/device:CPU:0"):
        assert tf.constant(1.0).device == f"/job:{job}/device:CPU:0"


def test_connecting_in_a_graph_keeps_the_cores_for_the_job():
    with tf.Graph().as_default():
        tf.config.experimental_connect_to_cluster(Resolver("my-tpu", job_name="trainer"))
    assert tf.config.list_logical_devices("TPU")


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_a_session_reaches_the_cores_by_the_caller_s_job(run_python, cores):
    """As lingvo does: devices of that job, and its cluster in the session's configuration."""
    run_python(
        """
        import tensorflow as tf

        import tf_tpu_ext

        v1 = tf.compat.v1
        v1.disable_eager_execution()
        cores = tf_tpu_ext.machine().cores
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver("my-tpu", job_name="trainer")
        cluster = resolver.cluster_spec()
        [host] = cluster.as_dict()["trainer"]
        assert resolver.master() == f"grpc://{host}"
        assert resolver.num_accelerators() == {"TPU": cores}
        host = "/job:trainer/replica:0/task:0/device:CPU:0"
        with tf.device(host):
            weight = v1.get_variable("w", initializer=3.0, use_resource=True)

        def computation(x):
            with tf.device(v1.tpu.core(0)):
                return v1.tpu.cross_replica_sum(x * weight)

        outputs = v1.tpu.replicate(computation, [[float(n)] for n in range(cores)])
        initialize = v1.tpu.initialize_system(job="trainer")
        config = v1.ConfigProto(cluster_def=cluster.as_cluster_def())
        with v1.Session(resolver.master(), config=config) as session:
            devices = [device.name for device in session.list_devices()]
            assert host in devices
            assert f"/job:trainer/replica:0/task:0/device:TPU:{cores - 1}" in devices
            session.run(initialize)
            session.run(weight.initializer)
            assert session.run(outputs) == [[3.0 * sum(range(cores))]] * cores
        """,
        env={"TF_TPU_EXT_CORES": str(cores)},
    )


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
    assert f"nightly was requested for TPU '{name}'" in caplog.text
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
    patches.undo_all()
    stock = vars(Resolver)["__init__"]
    patches.apply()
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


def test_connecting_to_this_machine_in_a_graph_does_nothing():
    with tf.Graph().as_default():
        tf.config.experimental_connect_to_cluster(Resolver())
        with pytest.raises(ValueError, match="eager"):
            tf.config.experimental_connect_to_cluster(
                tf.train.ClusterSpec({"worker": ["localhost:0"]})
            )


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


# What leads elsewhere still does.


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
