"""The members of `TPUStrategy` for the TPU system, its devices, hosts and towers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import device_util

from tf_tpu_ext.towers import _placement, _state, _values, context

_INITIALIZE = "TF_TPU_EXT_TPU_STRATEGY_INITIALIZE"


@_state.transparent_methods
class SystemMethods:
    """The members of `TPUStrategy` for the TPU system, its devices, hosts and towers."""

    # From `tf.distribute.TPUStrategy`.
    extended: Any
    cluster_resolver: Any
    num_replicas_in_sync: int

    def initialize(self) -> list[tf.Operation] | None:
        """Starts the TPU system.

        Returns:
            In a graph, the operations to run first, which are the same in every call. In eager
            code, None: the system has already started.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> strategy.initialize()
            >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            ...     _ = session.run(strategy.initialize())
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
        """Stops the TPU system. Variables on its cores are lost.

        Returns:
            In a graph, the operations to run last. In eager code, None: the system has already
            stopped.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> strategy.initialize()
            >>> strategy.finalize()
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
        """Adapts a Session's configuration to the TPU's cluster.

        Args:
            session_config: The configuration, which is changed in place.
            cluster_spec: Not used. The cluster is the resolver's.
            task_type: Not used.
            task_id: Not used.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> config = tf.compat.v1.ConfigProto()
            >>> strategy.configure(config)
            >>> config.isolate_session_state
            True
        """
        self.extended._configure(session_config, cluster_spec, task_type, task_id)

    @property
    def between_graph(self) -> bool:
        """Whether each worker builds its own graph. Always False: one graph serves all.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> strategy.between_graph
            False
        """
        return False

    @property
    def is_single_tower(self) -> bool:
        """Whether there is only one tower.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> strategy.is_single_tower
            False
        """
        return self.num_towers == 1

    @property
    def num_towers(self) -> int:
        """The number of towers.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> strategy.num_towers
            2
        """
        return int(self.num_replicas_in_sync)

    @property
    def num_hosts(self) -> int:
        """The number of hosts whose cores are used.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> strategy.num_hosts
            1
        """
        return int(self.extended.num_hosts)

    @property
    def num_towers_per_host(self) -> int:
        """The number of towers on each host.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> strategy.num_towers_per_host
            2
        """
        return int(self.extended.num_replicas_per_host)

    @property
    def worker_devices(self) -> list[str]:
        """The names of the towers' devices, in tower order.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> print([device[-5:] for device in strategy.worker_devices])
            ['TPU:0', 'TPU:1']
        """
        return [str(device) for device in self.extended.worker_devices]

    @property
    def parameter_devices(self) -> list[str]:
        """The names of the devices that hold variables, where `update` runs.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> strategy.parameter_devices == strategy.worker_devices
            True
        """
        return [str(device) for device in self.extended.parameter_devices]

    @property
    def worker_device_index(self) -> _values.DeviceIndex | int:
        """An argument for `call_for_each_tower` from which each tower gets its number.

        If there is only one tower, it is the integer 0.

        Raises:
            RuntimeError: The caller is not in the cross-tower context of this strategy.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> with strategy.scope():
            ...     index = strategy.worker_device_index
            ...     tens = strategy.call_for_each_tower(lambda i: i * 10, index)
            >>> print([int(x) for x in strategy.unwrap(tens)])
            [0, 10]
        """
        context.require_cross_tower_context(self, "worker_device_index")
        return 0 if self.is_single_tower else _values.DeviceIndex(self.worker_devices)

    @property
    def should_init(self) -> bool:
        """Whether this process initializes the variables. Always True.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> strategy.should_init
            True
        """
        return True

    @property
    def should_checkpoint(self) -> bool:
        """Whether this process writes checkpoints. Always True.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> strategy.should_checkpoint
            True
        """
        return True

    @property
    def should_save_summary(self) -> bool:
        """Whether this process writes summaries. Always True.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> strategy.should_save_summary
            True
        """
        return True

    def get_host_cpu_device(self, host_id: int) -> str:
        """Returns the name of the CPU device of a host.

        Args:
            host_id: The number of the host, from 0 to `num_hosts - 1`.

        Raises:
            ValueError: There is no such host.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> strategy.get_host_cpu_device(0)
            '/job:localhost/replica:0/task:0/device:CPU:0'
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
