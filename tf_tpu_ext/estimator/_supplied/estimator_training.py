"""Replaces `tensorflow.python.distribute.estimator_training`, for estimators in one process.

Clusters of estimator processes under a distribution strategy are not supported and raise an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn


def init_run_config(config: Any, tf_config: Mapping[str, Any]) -> None:
    """Sets up a RunConfig with a distribution strategy, for this process only.

    Args:
        config: The `RunConfig` under construction.
        tf_config: The contents of the environment variable `TF_CONFIG`.

    Raises:
        ValueError: Strategies are given in two places, or `TF_CONFIG` describes a cluster.
    """
    given = config._experimental_distribute
    if given is not None:
        for name in ("train_distribute", "eval_distribute"):
            value = getattr(given, name, None)
            if value is None:
                continue
            if getattr(config, f"_{name}") is not None:
                raise ValueError(
                    f"`{name}` must be given once. Received: RunConfig({name}=...) and "
                    f"experimental_distribute.{name}. Leave one of them out."
                )
            setattr(config, f"_{name}", value)
        if getattr(given, "remote_cluster", None):
            _refuse_cluster(given.remote_cluster)
    if tf_config.get("cluster"):
        _refuse_cluster(tf_config["cluster"])
    config._distribute_coordinator_mode = None
    config._init_distributed_setting_from_environment_var(tf_config)
    config._maybe_overwrite_session_config_for_distributed_training()


def should_run_distribute_coordinator(config: Any) -> bool:
    """Returns False, since `init_run_config` accepts nothing that needs a coordinator."""
    del config
    return False


def train_and_evaluate(estimator: Any, train_spec: Any, eval_spec: Any, executor: Any) -> NoReturn:
    """Raises ValueError; see `should_run_distribute_coordinator`."""
    del estimator, train_spec, eval_spec, executor
    _refuse_cluster("a distribute coordinator")


def estimator_train(estimator: Any, train: Callable[..., Any], hooks: Any) -> NoReturn:
    """Raises ValueError; see `should_run_distribute_coordinator`."""
    del estimator, train, hooks
    _refuse_cluster("a distribute coordinator")


def estimator_evaluate(estimator: Any, evaluate: Callable[..., Any], hooks: Any) -> NoReturn:
    """Raises ValueError; see `should_run_distribute_coordinator`."""
    del estimator, evaluate, hooks
    _refuse_cluster("a distribute coordinator")


def _refuse_cluster(found: object) -> NoReturn:
    raise ValueError(
        "Estimators with a distribution strategy run in one process on tf_tpu_ext. Expected no "
        f"cluster in TF_CONFIG. Received: {found}. Unset TF_CONFIG; the virtual cores of one "
        "process take the place of the workers."
    )
