"""Makes datasets serializable that read through objects in this process.

tf.data service copies a dataset's graph. It copies tables and variables along with it, but not the
objects that tensorflow-io's datasets of audio, LMDB, Avro and PCAP files keep open.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def serializable(dataset: Any) -> Any:
    """Returns a dataset with the same elements whose graph can be copied.

    Args:
        dataset: A dataset. If its graph refers to objects that can't be copied, each reader
            iterates over it in place, with a call into Python for each element.
    """
    graph = tf.compat.v1.GraphDef.FromString(dataset._as_serialized_graph().numpy())
    if not any(_is_handle(node) for node in graph.node):
        return dataset
    return tf.data.Dataset.from_generator(
        lambda: iter(dataset), output_signature=dataset.element_spec
    )


def _is_handle(node: Any) -> bool:
    return bool(node.op == "Const" and node.attr["dtype"].type == tf.resource.as_datatype_enum)
