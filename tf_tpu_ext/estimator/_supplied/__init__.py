"""Replacements for modules that tensorflow-estimator imports and TensorFlow has removed.

`_install` lists which module replaces which. They have only what tensorflow-estimator needs on
virtual cores.
"""
