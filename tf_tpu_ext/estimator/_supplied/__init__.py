"""Replacements for modules that tensorflow-estimator imports but TensorFlow has removed.

`_install` lists which module replaces which. They contain only what tensorflow-estimator needs on
virtual cores.
"""
