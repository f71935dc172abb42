"""The command `tf-tpu`.

Nothing in here imports tf_tpu_ext, because the command has to work where that import fails. So its
modules use relative imports, and `__main__` can load them from their folder alone. The module
`tf_tpu_command`, next to the package, starts the command.
"""
