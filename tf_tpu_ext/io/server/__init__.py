"""The program that runs a pipeline under the TensorFlow that tensorflow-io was built for.

`python <site-packages>/tf_tpu_ext/io/server FD FD PID` starts it. The interpreter belongs to the
other environment, where tf_tpu_ext is not installed, so nothing here imports tf_tpu_ext, and the
modules use relative imports. They must run on Python 3.9.
"""
