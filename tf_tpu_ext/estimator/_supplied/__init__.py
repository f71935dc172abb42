"""What tensorflow-estimator imports from TensorFlow and TensorFlow no longer has.

Each module stands in for one that was removed; `_install` says for which. They hold what
tensorflow-estimator asks of them on virtual cores, and no more.
"""
