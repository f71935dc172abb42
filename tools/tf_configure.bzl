"""The pip-installed TensorFlow as the repository @local_config_tf."""

# Bazel's toolchain adds flags of its own (hardening, frame pointers, redacted dates). Without them
# its compile commands are those of ninja_build.py, and one compiler cache serves both.
_FEATURES = [
    "-default_compile_flags",
    "-random_seed",
]

_BUILD = """
cc_library(
    name = "tensorflow",
    srcs = %s,
    hdrs = glob(["include/**"]),
    visibility = ["//visibility:public"],
)
"""

def _tf_configure(ctx):
    python = ctx.os.environ.get("PYTHON_BIN_PATH") or ctx.which("python3")
    if not python:
        fail("tf_configure: found no python3. Put one on PATH, or name it in PYTHON_BIN_PATH.")
    found = ctx.execute([python, ctx.path(Label("//tools:tf_config.py"))])
    if found.return_code:
        fail("tf_configure: " + found.stderr)
    config = json.decode(found.stdout)
    ctx.symlink(config["root"] + "/include", "include")
    for library in config["libraries"]:
        ctx.symlink(config["root"] + "/" + library, library)
    ctx.file("flags.bzl", "\n".join([
        "TF_COPTS = %r" % config["copts"],
        # Bazel expands $(VARIABLE) in options: a plain dollar is written twice.
        "TF_LINKOPTS = %r" % [option.replace("$", "$$") for option in config["linkopts"]],
        "BAZEL_FEATURES = %r" % _FEATURES,
        "",
    ]))
    ctx.file("BUILD", _BUILD % config["libraries"])

tf_configure = repository_rule(
    implementation = _tf_configure,
    environ = ["PYTHON_BIN_PATH"],
    local = True,
)
