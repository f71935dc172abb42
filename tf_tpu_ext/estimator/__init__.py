"""TPUEstimator on virtual cores, and the other estimator names that TPU scripts use.

    import tf_tpu_ext.estimator as tpu_estimator

    config = tpu_estimator.RunConfig(
        model_dir=folder,
        cluster=tf.distribute.cluster_resolver.TPUClusterResolver("any-name"),
        tpu_config=tpu_estimator.TPUConfig(iterations_per_loop=100),
    )
    estimator = tpu_estimator.TPUEstimator(
        model_fn, use_tpu=True, config=config, train_batch_size=64
    )
    estimator.train(input_fn, max_steps=1000)

The classes are those of the package tensorflow-estimator 2.15.0 (`pip install
'tf_tpu_ext[estimator]'`). This module supplies the parts of TensorFlow that the package needs and
that TensorFlow has removed. The classes are documented at
https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/compat/v1/estimator, and
docs/estimator.md shows how to run, debug and test programs with them. Importing this module applies
the patches in the group `estimator`; see `tf_tpu_ext.patches`. `install` makes `tf.estimator` work.
"""

from __future__ import annotations

from tf_tpu_ext.estimator._hosts import set_input_hosts
from tf_tpu_ext.estimator._install import install, load

load()

from tensorflow_estimator.python.estimator import keras_lib as _keras  # noqa: E402
from tensorflow_estimator.python.estimator.early_stopping import (  # noqa: E402
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from tensorflow_estimator.python.estimator.estimator import (  # noqa: E402
    Estimator,
    VocabInfo,
    WarmStartSettings,
)
from tensorflow_estimator.python.estimator.export import export_lib as export  # noqa: E402
from tensorflow_estimator.python.estimator.exporter import (  # noqa: E402
    BestExporter,
    Exporter,
    FinalExporter,
    LatestExporter,
)
from tensorflow_estimator.python.estimator.inputs import inputs  # noqa: E402
from tensorflow_estimator.python.estimator.mode_keys import ModeKeys  # noqa: E402
from tensorflow_estimator.python.estimator.model_fn import EstimatorSpec  # noqa: E402
from tensorflow_estimator.python.estimator.tpu._tpu_estimator_embedding import (  # noqa: E402
    EmbeddingConfigSpec,
)
from tensorflow_estimator.python.estimator.tpu.tpu_config import (  # noqa: E402
    InputPipelineConfig,
    RunConfig,
    TPUConfig,
)
from tensorflow_estimator.python.estimator.tpu.tpu_context import TPUContext  # noqa: E402
from tensorflow_estimator.python.estimator.tpu.tpu_estimator import (  # noqa: E402
    BatchConfig,
    ExportSavedModelApiVersion,
    TPUEstimator,
    TPUEstimatorSpec,
    export_estimator_savedmodel,
    inference_on_tpu,
    model_fn_inference_on_tpu,
)
from tensorflow_estimator.python.estimator.training import (  # noqa: E402
    EvalSpec,
    TrainSpec,
    train_and_evaluate,
)

model_to_estimator = _keras.model_to_estimator

__all__ = [
    "BatchConfig",
    "BestExporter",
    "EmbeddingConfigSpec",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "ExportSavedModelApiVersion",
    "Exporter",
    "FinalExporter",
    "InputPipelineConfig",
    "LatestExporter",
    "ModeKeys",
    "RunConfig",
    "TPUConfig",
    "TPUContext",
    "TPUEstimator",
    "TPUEstimatorSpec",
    "TrainSpec",
    "VocabInfo",
    "WarmStartSettings",
    "export",
    "export_estimator_savedmodel",
    "inference_on_tpu",
    "inputs",
    "install",
    "model_fn_inference_on_tpu",
    "model_to_estimator",
    "set_input_hosts",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
    "train_and_evaluate",
]
