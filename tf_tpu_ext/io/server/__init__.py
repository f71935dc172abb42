"""The program that runs a pipeline under the TensorFlow that tensorflow-io was built for.

`python <site-packages>/tf_tpu_ext/io/server FD FD PID` starts it. The interpreter is that of the
other environment, where tf_tpu_ext is not installed: nothing in here imports it, and the modules
know each other by relative imports. Python 3.9 has to be able to run them.
"""
