"""Bazel's built-in rules under the repository names it would otherwise download.

Bazel 4 asks for rules_cc and its sisters even where only native rules are used. This build needs
none of them, so each becomes a repository that hands out the native rule: no network is needed.
"""

_REPOSITORIES = {
    "rules_cc": struct(
        package = "cc",
        rules = [
            "cc_binary",
            "cc_import",
            "cc_library",
            "cc_proto_library",
            "cc_test",
            "cc_toolchain",
            "cc_toolchain_suite",
            "objc_library",
        ],
    ),
    "rules_java": struct(
        package = "java",
        rules = [
            "java_binary",
            "java_import",
            "java_library",
            "java_proto_library",
            "java_runtime",
            "java_toolchain",
        ],
    ),
    "rules_proto": struct(
        package = "proto",
        rules = ["proto_lang_toolchain", "proto_library"],
    ),
}

# Every cc_test depends on it, coverage asked for or not.
_COVERAGE_BUILD = """
sh_binary(
    name = "coverage_report_generator",
    srcs = ["BUILD"],
    visibility = ["//visibility:public"],
)
"""

def _bundled(ctx):
    ctx.file("BUILD", ctx.attr.build)
    if ctx.attr.package:
        ctx.file(ctx.attr.package + "/BUILD", "")
        ctx.file(
            ctx.attr.package + "/defs.bzl",
            "".join(["%s = native.%s\n" % (rule, rule) for rule in ctx.attr.rules]),
        )

_bundled_repository = repository_rule(
    implementation = _bundled,
    attrs = {
        "build": attr.string(),
        "package": attr.string(),
        "rules": attr.string_list(),
    },
)

def bundled_rules():
    """Declares the repositories, for a Bazel 4: later ones carry what they need."""

    # Debian's build of Bazel 4 has no version.
    if native.bazel_version and not native.bazel_version.startswith("4."):
        return
    for name, content in _REPOSITORIES.items():
        _bundled_repository(name = name, package = content.package, rules = content.rules)
    _bundled_repository(name = "remote_coverage_tools", build = _COVERAGE_BUILD)
