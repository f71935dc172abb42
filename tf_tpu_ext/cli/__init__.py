"""The command `tf-tpu`.

Nothing in here imports tf_tpu_ext: the command has to work where that import fails. So its modules
know each other by relative imports, and `__main__` can load them from their folder alone. It is
`tf_tpu_command`, beside the package, that starts it.
"""
