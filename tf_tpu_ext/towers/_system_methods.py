"""What a `TPUStrategy` tells of itself: its devices, hosts and towers, its start and its end."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import device_util

from tf_tpu_ext.towers import _placement, _state, _values, context

_INITIALIZE = "TF_TPU_EXT_TPU_STRATEGY_INITIALIZE"


@_state.transparent_methods
class SystemMethods:
    """The members of `TPUStrategy` that run nothing on the towers."""

    # Those of `tf.distribute.TPUStrategy` that these stand on.
    extended: Any
    cluster_resolver: Any
    num_replicas_in_sync: int

    def initialize(self) -> list[tf.Operation] | None:
        """Starts the TPU system.

        Returns:
            In a graph, the operations to run first, the same ones for each call; eagerly None.
        """
        if tf.executing_eagerly():
            tf.tpu.experimental.initialize_tpu_system(self.cluster_resolver)
            return None
        with tf.init_scope():
            if tf.executing_eagerly():  # In a tf.function.
                return []
        graph = tf.compat.v1.get_default_graph()
        if not graph.get_collection(_INITIALIZE):
            started = tf.compat.v1.tpu.initialize_system(job=_placement.job(self))
            graph.add_to_collection(_INITIALIZE, started.op)
        return list(graph.get_collection(_INITIALIZE))

    def finalize(self) -> list[tf.Operation] | None:
        """Stops the TPU system; variables on its cores are lost.

        Returns:
            In a graph, the operations to run last; eagerly None.
        """
        if tf.executing_eagerly():
            tf.tpu.experimental.shutdown_tpu_system(self.cluster_resolver)
            return None
        return [tf.compat.v1.tpu.shutdown_system(job=_placement.job(self))]

    def configure(
        self,
        session_config: tf.compat.v1.ConfigProto | None = None,
        cluster_spec: Any = None,
        task_type: str | None = None,
        task_id: int | None = None,
    ) -> None:
        """Prepares the configuration of a Session for the cluster of the TPU.

        Args:
            session_config: Changed in place.
            cluster_spec: Not used: the cluster is that of the resolver.
            task_type: Not used.
            task_id: Not used.
        """
        self.extended._configure(session_config, cluster_spec, task_type, task_id)

    @property
    def between_graph(self) -> bool:
        """Whether each worker builds a graph of its own: False, one graph serves all."""
        return False

    @property
    def is_single_tower(self) -> bool:
        """Whether there is one tower only."""
        return self.num_towers == 1

    @property
    def num_towers(self) -> int:
        """The number of towers, by which a mean over them divides."""
        return int(self.num_replicas_in_sync)

    @property
    def num_hosts(self) -> int:
        """The number of hosts whose cores are used."""
        return int(self.extended.num_hosts)

    @property
    def num_towers_per_host(self) -> int:
        """The number of towers on each host."""
        return int(self.extended.num_replicas_per_host)

    @property
    def worker_devices(self) -> list[str]:
        """The devices of the towers, in their order."""
        return [str(device) for device in self.extended.worker_devices]

    @property
    def parameter_devices(self) -> list[str]:
        """The devices of variables and of `update`."""
        return [str(device) for device in self.extended.parameter_devices]

    @property
    def worker_device_index(self) -> _values.DeviceIndex | int:
        """An argument for `call_for_each_tower` that gives each tower its number.

        The integer 0 if there is one tower only.
        """
        context.require_cross_tower_context(self, "worker_device_index")
        return 0 if self.is_single_tower else _values.DeviceIndex(self.worker_devices)

    @property
    def should_init(self) -> bool:
        """Whether this process initializes the variables: True."""
        return True

    @property
    def should_checkpoint(self) -> bool:
        """Whether this process writes checkpoints: True."""
        return True

    @property
    def should_save_summary(self) -> bool:
        """Whether this process writes summaries: True."""
        return True

    def get_host_cpu_device(self, host_id: int) -> str:
        """Returns the name of a host's CPU device.

        Args:
            host_id: The number of the host, from 0 to `num_hosts - 1`.

        Raises:
            ValueError: There is no such host.
        """
        hosts: list[str] = []
        for device in self.worker_devices:
            host = device_util.get_host_for_device(device)
            if host not in hosts:
                hosts.append(host)
        if not 0 <= host_id < len(hosts):
            raise ValueError(
                f"get_host_cpu_device got host_id={host_id}, expected 0 to {len(hosts) - 1}: the "
                f"hosts are {', '.join(hosts)}."
            )
        return hosts[host_id]
