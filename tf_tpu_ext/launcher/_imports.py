"""Determines whether importing a module again, elsewhere, only defines things."""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
import types
from typing import Any

# What assignments may call, because it depends only on its arguments.
_PURE = {
    *("dict", "float", "frozenset", "int", "len", "list", "max", "min", "range", "set"),
    *("sorted", "str", "sum", "tuple", "zip"),
    *("collections.namedtuple", "logging.getLogger", "re.compile", "typing.NamedTuple"),
    *("os.path.abspath", "os.path.basename", "os.path.dirname", "os.path.join"),
}


def side_effect(namespace: dict[str, Any]) -> str:
    """Returns what importing a module does besides defining things, or ''.

    Args:
        namespace: The module's namespace. Modules that it imports are checked as well, except
            installed ones.
    """
    return _in_module(namespace, set())


def returns_nothing(namespace: dict[str, Any], name: str) -> str:
    """Returns '' if a module's function may return a dataset, or else a message that it doesn't."""
    file = str(namespace.get("__file__"))
    if not os.path.exists(file):
        return ""  # side_effect says so
    with open(file, "rb") as source:
        tree = ast.parse(source.read(), file)
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            values = [node.value for node in _in_body(statement) if isinstance(node, ast.Return)]
            if all(value is None or isinstance(value, ast.Constant) for value in values):
                return "it returns no dataset"
    return ""


def _in_body(node: ast.AST) -> list[ast.AST]:
    """Returns the nodes of a function, excluding those of nested functions."""
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    children = [child for child in ast.iter_child_nodes(node) if not isinstance(child, inner)]
    return [*children, *(deeper for child in children for deeper in _in_body(child))]


def _in_module(namespace: dict[str, Any], seen: set[str]) -> str:
    file = namespace.get("__file__")
    if not file or not str(file).endswith(".py") or not os.path.exists(file):
        return f"the module {namespace.get('__name__')} has no source file"
    seen.add(str(file))
    with open(file, "rb") as source:
        tree = ast.parse(source.read(), str(file))
    for statement in tree.body:
        call = _call_in(statement)
        if call is not None:
            what = ast.unparse(call.func)
            return f"{file}, line {call.lineno}, calls {what} at import"
    for value in list(namespace.values()):
        module = value if isinstance(value, types.ModuleType) else _module_of(value)
        path = getattr(module, "__file__", None)
        if module is None or not path or str(path) in seen or _is_installed(str(path)):
            continue
        problem = _in_module(vars(module), seen)
        if problem:
            return problem
    return ""


def _module_of(value: Any) -> types.ModuleType | None:
    return sys.modules.get(str(getattr(value, "__module__", None)))


def _is_installed(path: str) -> bool:
    places = ("purelib", "platlib", "stdlib", "platstdlib")
    installed = tuple(os.path.join(os.path.realpath(sysconfig.get_path(p)), "") for p in places)
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return os.path.realpath(path).startswith((*installed, os.path.join(package, "")))


def _call_in(statement: ast.stmt) -> ast.Call | None:
    """Returns a call that a module's statement makes, unless it is known to be harmless."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)) or is_main_guard(statement):
        return None
    for node in _evaluated(statement):
        if isinstance(node, ast.Call) and ast.unparse(node.func) not in _PURE:
            return node
    return None


def _evaluated(node: ast.AST) -> list[ast.AST]:
    """Returns the nodes that are evaluated immediately, which excludes function bodies."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        children: list[ast.AST] = [*node.decorator_list, *node.args.defaults]
        children += [default for default in node.args.kw_defaults if default is not None]
    elif isinstance(node, ast.Lambda):
        children = []
    else:
        children = list(ast.iter_child_nodes(node))
    return [node, *(inner for child in children for inner in _evaluated(child))]


def is_main_guard(statement: ast.stmt) -> bool:
    """Returns whether a statement is `if __name__ == "__main__":`."""
    return isinstance(statement, ast.If) and ast.unparse(statement.test) in (
        "__name__ == '__main__'",
        "'__main__' == __name__",
    )
