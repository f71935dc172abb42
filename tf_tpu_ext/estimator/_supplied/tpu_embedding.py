"""Replaces `tensorflow.python.tpu.tpu_embedding`: embedding tables in the TPU's memory.

`TPUEmbedding` creates TensorFlow 1 ops for them. TPUEstimator uses it for the feature columns of an
`embedding_config_spec`.
"""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.tpu import tpu_embedding_configuration_pb2
from tensorflow.python.tpu.ops import tpu_ops

from tf_tpu_ext import _machine
from tf_tpu_ext.estimator._supplied.embedding_configs import (
    AdagradMomentumParameters,
    AdagradMomentumSlotVariableNames,
    AdagradParameters,
    AdagradSlotVariableNames,
    AdamParameters,
    AdamSlotVariableNames,
    EnqueueData,
    FeatureConfig,
    FrequencyEstimatorParameters,
    FrequencyEstimatorSlotVariableNames,
    FtrlParameters,
    FtrlSlotVariableNames,
    MomentumParameters,
    MomentumSlotVariableNames,
    ProximalAdagradParameters,
    ProximalAdagradSlotVariableNames,
    ProximalYogiParameters,
    ProximalYogiSlotVariableNames,
    RMSPropParameters,
    RMSPropSlotVariableNames,
    StochasticGradientDescentParameters,
    TableConfig,
)
from tf_tpu_ext.estimator._supplied.embedding_optimizers import (
    EngineOptimizer,
    describe,
    engine_optimizer,
)

__all__ = [
    "INFERENCE",
    "TRAINING",
    "AdagradMomentumParameters",
    "AdagradMomentumSlotVariableNames",
    "AdagradParameters",
    "AdagradSlotVariableNames",
    "AdamParameters",
    "AdamSlotVariableNames",
    "DeviceConfig",
    "EnqueueData",
    "FeatureConfig",
    "FrequencyEstimatorParameters",
    "FrequencyEstimatorSlotVariableNames",
    "FtrlParameters",
    "FtrlSlotVariableNames",
    "MomentumParameters",
    "MomentumSlotVariableNames",
    "ProximalAdagradParameters",
    "ProximalAdagradSlotVariableNames",
    "ProximalYogiParameters",
    "ProximalYogiSlotVariableNames",
    "RMSPropParameters",
    "RMSPropSlotVariableNames",
    "StochasticGradientDescentParameters",
    "TPUEmbedding",
    "TableConfig",
    "VariablesAndOps",
    "get_enqueue_datas_list_from_sparse_tensors_list",
]

_Configuration = tpu_embedding_configuration_pb2.TPUEmbeddingConfiguration

TRAINING = _Configuration.TRAINING
INFERENCE = _Configuration.INFERENCE

VariablesAndOps = collections.namedtuple(
    "VariablesAndOps",
    ["embedding_variables_by_table", "slot_variables_by_table", "load_ops", "retrieve_ops"],
)

DeviceConfig = collections.namedtuple("DeviceConfig", ["num_hosts", "num_cores", "job_name"])


def get_enqueue_datas_list_from_sparse_tensors_list(
    sp_tensors_list: Sequence[Mapping[str, Any]],
) -> list[dict[str, EnqueueData]]:
    """Returns each core's `EnqueueData` by feature, from its SparseTensors of ids."""
    return [
        {name: EnqueueData.from_sparse_tensor(ids) for name, ids in features.items()}
        for features in sp_tensors_list
    ]


class TPUEmbedding:
    """Creates the ops for a configuration of embedding tables.

    Args:
        table_to_config_dict: The `TableConfig` of each table, by name.
        feature_to_config_dict: The `FeatureConfig` of each feature, by name.
        batch_size: The number of samples in a step, over all cores.
        mode: `TRAINING` or `INFERENCE`.
        master, cluster_def, profile_data_directory, master_job_name, device_config: Not used.
        optimization_parameters: For training, the optimizer for tables without their own.
        pipeline_execution_with_tensor_core: Whether lookups miss the previous step's update.
        partition_strategy: How rows are divided among hosts, `"div"` or `"mod"`.

    Raises:
        ValueError: An argument is invalid, or arguments contradict each other.
    """

    def __init__(
        self,
        table_to_config_dict: Mapping[str, TableConfig],
        feature_to_config_dict: Mapping[str, FeatureConfig],
        batch_size: int,
        mode: int,
        master: str | None = None,
        optimization_parameters: Any = None,
        cluster_def: Any = None,
        pipeline_execution_with_tensor_core: bool = False,
        partition_strategy: str = "div",
        profile_data_directory: str | None = None,
        device_config: Any = None,
        master_job_name: str | None = None,
    ) -> None:
        del master, cluster_def, profile_data_directory, device_config, master_job_name
        if mode not in (TRAINING, INFERENCE):
            raise ValueError(f"`mode` must be TRAINING or INFERENCE. Received: mode={mode!r}")
        if partition_strategy not in ("div", "mod"):
            raise ValueError(
                "`partition_strategy` must be 'div' or 'mod'. "
                f"Received: partition_strategy={partition_strategy!r}"
            )
        self._cores = _machine.machine().cores
        if batch_size % self._cores:
            raise ValueError(
                "`batch_size` must be divisible by the number of cores. Received: "
                f"batch_size={batch_size}, with {self._cores} cores"
            )
        self._batch_size = batch_size // self._cores
        self._mode = mode
        self._pipelined = pipeline_execution_with_tensor_core
        self._partition_strategy = partition_strategy
        # The order of tables and features in the configuration.
        self._table_to_config_dict = dict(sorted(table_to_config_dict.items()))
        self._feature_to_config_dict = dict(sorted(feature_to_config_dict.items()))
        used = {config.table_id for config in self._feature_to_config_dict.values()}
        if used != set(self._table_to_config_dict):
            raise ValueError(
                "The features must look up all tables and no others. Received: tables "
                f"{list(self._table_to_config_dict)}, features of {sorted(used)}"
            )
        self._optimization_parameters = optimization_parameters
        # By table. If there are only lookups, any optimizer will do.
        self._parameters: dict[str, Any] = {}
        for name, table in self._table_to_config_dict.items():
            own = table.optimization_parameters or optimization_parameters
            if mode == INFERENCE:
                own = StochasticGradientDescentParameters(1.0)
            elif own is None:
                raise ValueError(
                    f"Table {name!r} has no optimizer. Give `optimization_parameters` for training."
                )
            engine_optimizer(own)
            self._parameters[name] = own
        rates = (table.learning_rate_fn for table in self._table_to_config_dict.values())
        # Each function is a dynamic learning rate, which tables may share.
        self._learning_rates: list[Callable[..., Any]] = list(
            dict.fromkeys(rate for rate in rates if rate is not None)
        )
        self._config = self._make_config()
        # The number of cores that a graph has enqueue ops for.
        self._enqueued: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    @property
    def config_proto(self) -> Any:
        """The `TPUEmbeddingConfiguration`, for `tpu.initialize_system`."""
        copy = _Configuration()
        copy.CopyFrom(self._config)
        return copy

    @property
    def table_to_config_dict(self) -> dict[str, TableConfig]:
        """The `TableConfig` of each table, by name."""
        return dict(self._table_to_config_dict)

    @property
    def feature_to_config_dict(self) -> dict[str, FeatureConfig]:
        """The `FeatureConfig` of each feature, by name."""
        return dict(self._feature_to_config_dict)

    @property
    def optimization_parameters(self) -> Any:
        """The optimizer for tables without their own."""
        return self._optimization_parameters

    @property
    def batch_size_per_core(self) -> int:
        """The number of samples per step on one core."""
        return self._batch_size

    @property
    def num_cores(self) -> int:
        """The number of cores."""
        return self._cores

    @property
    def mode(self) -> int:
        """`TRAINING` or `INFERENCE`."""
        return self._mode

    def _make_config(self) -> Any:
        config = _Configuration(
            mode=self._mode,
            num_hosts=1,
            num_tensor_cores=self._cores,
            pipeline_execution_with_tensor_core=self._pipelined,
            sharding_strategy=(
                _Configuration.MOD
                if self._partition_strategy == "mod"
                else _Configuration.DIV_DEFAULT
            ),
        )
        numbers = {}
        for number, (name, table) in enumerate(self._table_to_config_dict.items()):
            numbers[name] = number
            described = config.table_descriptor.add(
                name=name, vocabulary_size=table.vocabulary_size, dimension=table.dimension
            ).optimization_parameters
            parameters = self._parameters[name]
            if table.learning_rate_fn is not None:
                tag = self._learning_rates.index(table.learning_rate_fn)
                described.learning_rate.dynamic.tag = tag
            else:
                own = table.learning_rate
                described.learning_rate.constant = parameters.learning_rate if own is None else own
            describe(parameters, described)
        for name, feature in self._feature_to_config_dict.items():
            shape = [self._batch_size]
            if feature.max_sequence_length > 0:
                shape.append(feature.max_sequence_length)
            config.feature_descriptor.add(
                name=name, table_id=numbers[feature.table_id], input_shape=shape
            )
        return config

    def generate_enqueue_ops(
        self, enqueue_datas_list: Sequence[Mapping[str, EnqueueData]], **unused: Any
    ) -> list[Any]:
        """Creates ops that enqueue batches, each for the next core.

        Args:
            enqueue_datas_list: For each core, the `EnqueueData` of each feature, by name.
            **unused: Not used.

        Returns:
            The ops, one for each entry of the list.
        """
        del unused
        graph = tf.compat.v1.get_default_graph()
        ops = []
        for features in enqueue_datas_list:
            if set(features) != set(self._feature_to_config_dict):
                raise ValueError(
                    f"Expected the features {list(self._feature_to_config_dict)}. "
                    f"Received: {sorted(features)}"
                )
            core = self._enqueued.get(graph, 0)
            self._enqueued[graph] = (core + 1) % self._cores
            ops.append(self._enqueue(features, core))
        return ops

    def _enqueue(self, features: Mapping[str, EnqueueData], core: int) -> Any:
        rows, ids, weights = [], [], []
        for name, feature in self._feature_to_config_dict.items():
            data = features[name]
            with tf.compat.v1.device(data.embedding_indices.device):
                if data.sample_indices is None:
                    rows.append(tf.zeros([0], tf.int32))
                else:
                    indices = tf.cast(data.sample_indices, tf.int32)
                    if feature.max_sequence_length > 0:
                        # Each position is a separate row.
                        indices = tf.pad(indices, [[0, 0], [0, 1]])
                    rows.append(indices)
                ids.append(tf.cast(tf.reshape(data.embedding_indices, [-1]), tf.int64))
                given = data.aggregation_weights
                weights.append(tf.zeros([0]) if given is None else tf.cast(given, tf.float32))
        combiners = [table.combiner or "sum" for table in self._table_to_config_dict.values()]
        return tpu_ops.enqueue_tpu_embedding_arbitrary_tensor_batch(
            rows, ids, weights, device_ordinal=core, combiners=combiners
        )

    def get_activations(self) -> dict[str, Any]:
        """Dequeues the activations of the core's next batch. Call it in a TPU computation.

        Returns:
            By feature, a float32 tensor of shape `[batch_size_per_core, dimension]`, or for a
            sequence `[batch_size_per_core, max_sequence_length, dimension]`.
        """
        activations = tpu_ops.recv_tpu_embedding_activations(
            num_outputs=len(self._feature_to_config_dict), config=self._config.SerializeToString()
        )
        return dict(zip(self._feature_to_config_dict, activations, strict=True))

    def generate_send_gradients_op(
        self, feature_to_gradient_dict: Mapping[str, Any], step: Any = None
    ) -> Any:
        """Creates the op that sends the gradients of the activations to the engine.

        Args:
            feature_to_gradient_dict: The gradient of each feature's activations, by name.
            step: The argument for learning rate functions; None calls them without one.

        Raises:
            RuntimeError: The mode is `INFERENCE`.
        """
        if self._mode != TRAINING:
            raise RuntimeError("Gradients of embeddings need mode=TRAINING. Received: INFERENCE")
        rates = [
            tf.cast(rate() if step is None else rate(step), tf.float32)
            for rate in self._learning_rates
        ]
        return tpu_ops.send_tpu_embedding_gradients(
            inputs=[feature_to_gradient_dict[name] for name in self._feature_to_config_dict],
            learning_rates=rates,
            config=self._config.SerializeToString(),
        )

    def create_variables_and_ops(
        self,
        embedding_variable_name_by_table: Mapping[str, str] | None = None,
        slot_variable_names_by_table: Mapping[str, Sequence[str]] | None = None,
    ) -> VariablesAndOps:
        """Creates variables on the host for the tables and their slots.

        Checkpoints contain these variables. The result's `load_ops` creates ops that load their
        values into the TPU, and its `retrieve_ops` creates ops that update them from the TPU.
        """
        variables: dict[str, Any] = {}
        slots: dict[str, list[Any]] = {}
        for name, table in self._table_to_config_dict.items():
            variable = (embedding_variable_name_by_table or {}).get(name, name)
            variables[name] = self._create(variable, table, table.initializer)
            slots[name] = []
            if self._mode != TRAINING:
                continue
            own = engine_optimizer(self._parameters[name]).slots
            given = (slot_variable_names_by_table or {}).get(name)
            names = list(given) if given else [f"{variable}/{suffix}" for suffix, _ in own]
            for slot, (_, start) in zip(names, own, strict=True):
                start_at = tf.compat.v1.constant_initializer(start)
                slots[name].append(self._create(slot, table, start_at))

        def ops(make: Callable[[str, EngineOptimizer, list[Any]], Any]) -> Callable[[], list[Any]]:
            def make_all() -> list[Any]:
                with tf.compat.v1.device("/device:CPU:0"):
                    return [
                        make(
                            name, engine_optimizer(self._parameters[name]), [variable, *slots[name]]
                        )
                        for name, variable in variables.items()
                    ]

            return make_all

        def load(name: str, optimizer: EngineOptimizer, states: list[Any]) -> Any:
            return optimizer.load(*states, num_shards=1, shard_id=0, table_name=name)

        def retrieve(name: str, optimizer: EngineOptimizer, states: list[Any]) -> Any:
            values = optimizer.retrieve(num_shards=1, shard_id=0, table_name=name)
            # An op with one result returns it without a tuple.
            values = [values] if len(states) == 1 else list(values)
            return tf.group(
                *(
                    tf.compat.v1.assign(state, value)
                    for state, value in zip(states, values, strict=True)
                )
            )

        return VariablesAndOps(variables, slots, ops(load), ops(retrieve))

    @staticmethod
    def _create(name: str, table: TableConfig, initializer: Any) -> Any:
        with tf.compat.v1.device("/device:CPU:0"):
            # The names of partitions contain the host's number, even if there is only one host.
            [variable] = tf.compat.v1.get_variable(
                name,
                shape=[table.vocabulary_size, table.dimension],
                dtype=tf.float32,
                initializer=initializer,
                trainable=False,
                collections=[tf.compat.v1.GraphKeys.GLOBAL_VARIABLES],
                partitioner=tf.compat.v1.fixed_size_partitioner(1),
                use_resource=True,
            )
            return variable
