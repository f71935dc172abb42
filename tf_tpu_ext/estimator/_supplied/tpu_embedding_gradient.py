"""Stands in for `tensorflow.python.tpu.tpu_embedding_gradient`.

Its functions take a `TPUEmbedding`, which virtual cores do not have.
"""

from __future__ import annotations

from tf_tpu_ext.estimator._supplied.tpu_embedding import no_hardware

create_dummy_table_variables = no_hardware
hook_dummy_table_variables_to_activations = no_hardware
get_gradients_through_dummy_table_variables = no_hardware
