"""What the native library needs from TensorFlow that another TensorFlow does not export.

Shows within seconds what the next minor version costs. The library was linked against this Python's
TensorFlow (or that of --built-against); what it uses from there is looked up in the other one.
Missing symbols are grouped by the header that declares them:

* `changed`: the other one exports the name with other parameters. Compiled against its headers, the
  call either adapts or is a compiler error.
* `gone`: no such name. It is inline there, has moved, or no longer exists.

Symbols that we declare ourselves, in cc/abi, come first: no compiler error reveals that they have
changed. Symbols of libraries whose namespace or inline code depends on their version (absl,
protobuf, ...) are only counted, because recompiling fixes them. A library that was compiled for the
other TensorFlow uses what cc/abi selects for that minor version, so nothing may be missing then:
this checks that it loads. What no symbol shows, such as the layout of a class, is not found.

Examples:
    tools/abi_check ../other-venv                   # the library of this checkout
    tools/abi_check unpacked-wheel --library build/native/libtf_tpu_ext_ops.so
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import build_file  # noqa: E402
import ninja_build  # noqa: E402
import tf_config  # noqa: E402

# Their symbols vary with their version, and code that is compiled against their headers follows.
FOLLOWING = ("absl", "google::protobuf", "Eigen", "std")
# The versions that absl puts into its names.
_VERSION = re.compile(r"\blts_\d+::|(?<=_)lts_\d+\b")
_SPECIAL = re.compile(
    r"^(?:vtable|typeinfo(?: name)?|VTT|guard variable|(?:non-)?virtual thunk|reference temporary"
    r"(?: #\d+)?) (?:for|to) "
)
_OPERATOR = re.compile(r"\boperator(?:\(\)|[^\w(]+| [^(]+)")
_INCLUDE = re.compile(r'^\s*#\s*include(?:_next)?\s*[<"]([^>"]+)[>"]', re.MULTILINE)
_HAND_MADE = "cc/abi/"


@dataclasses.dataclass(frozen=True)
class Missing:
    """A symbol that is needed and not exported.

    Attributes:
        name: The symbol, demangled.
        header: The header that declares it, else its namespace.
        others: What the other TensorFlow exports under the same qualified name.
    """

    name: str
    header: str
    others: tuple[str, ...]


def find_tensorflow(place: pathlib.Path) -> pathlib.Path:
    """Returns the folder `tensorflow` of a virtual environment, site-packages or unpacked wheel.

    Raises:
        RuntimeError: There is none.
    """
    inside = sorted(place.glob("lib/python3*/site-packages/tensorflow"))
    for folder in (place, place / "tensorflow", *inside):
        if (folder / tf_config.LIBRARIES[0]).exists():
            return folder
    raise RuntimeError(
        f"Expected TensorFlow in {place}: a virtual environment, its site-packages, an unpacked "
        f"wheel or the folder with {tf_config.LIBRARIES[0]}. Found none. To get one, run: pip "
        "download --no-deps tensorflow-cpu==VERSION && python -m zipfile -e *.whl FOLDER"
    )


def _symbols(library: pathlib.Path, which: str) -> set[str]:
    command = ["nm", "-D", which, "-f", "posix", str(library)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # A version follows some names.
    return {line.split()[0].partition("@")[0] for line in listed.splitlines() if line}


def exports(tensorflow: pathlib.Path) -> set[str]:
    """Returns the symbols that TensorFlow's libraries export."""
    found = (_symbols(tensorflow / name, "--defined-only") for name in tf_config.LIBRARIES)
    return set().union(*found)


def needs(library: pathlib.Path, offered: set[str]) -> set[str]:
    """Returns what a library uses from the TensorFlow that exports these symbols."""
    return _symbols(library, "--undefined-only") & offered


def demangle(names: Iterable[str]) -> dict[str, str]:
    """Returns the C++ name of each symbol."""
    names = list(names)
    text = "\n".join(names)
    done = subprocess.run(["c++filt"], input=text, check=True, capture_output=True, text=True)
    return dict(zip(names, done.stdout.splitlines(), strict=True))


def qualified_name(demangled: str) -> str:
    """Returns a C++ name without template arguments, parameters and result type.

    Example:
        >>> qualified_name("void a::B<int>::f<c::D>(int, a::E const&)")
        'a::B::f'
    """
    text = _SPECIAL.sub("", demangled).replace("(anonymous namespace)", "anonymous")
    text = re.sub(r"\[abi:\w+\]", "", text)
    # An operator's own symbols are not brackets.
    operator = _OPERATOR.search(text)
    kept, depth = [], 0
    for letter in text[: operator.start()] if operator else text:
        depth += letter == "<"
        if letter == "(" and depth == 0:
            break
        if depth == 0:
            kept.append(letter)
        depth -= letter == ">"
    if operator:
        kept += operator[0].replace(" ", "")
    return "".join(kept).split(" ")[-1]


def reached_headers(root: pathlib.Path, include: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Yields the name and text of every header that the sources include, directly or indirectly."""
    sources = [*root.glob("cc/**/*.cc"), *root.glob("cc/**/*.h")]
    folders = (root / build_file.STAND_INS, root, include)
    ahead = [path for path in sources if path.exists()]
    seen: set[str] = set()
    while ahead:
        path = ahead.pop()
        text = path.read_text(errors="replace")
        for name in _INCLUDE.findall(text):
            if name in seen:
                continue
            seen.add(name)
            ahead += [folder / name for folder in folders if (folder / name).is_file()]
        for folder in (root, include):
            if path.is_relative_to(folder) and path.suffix != ".cc":
                yield str(path.relative_to(folder)), text


def find_headers(names: set[str], headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns the header that declares each qualified name, if one is found.

    A member is declared where its class is defined, a function where a line of the same namespace
    declares it.
    """
    if not names:
        return {}
    classes = {name.split("::")[-2] for name in names if name.count("::")}
    classes |= {name.split("::")[-1] for name in names}
    definition = re.compile(
        r"\b(?:class|struct|enum class)\s+(?:\[\[[^\]]*\]\]\s*)?(?:[A-Z_]+(?:\([^)]*\))?\s+)*"
        rf"({'|'.join(map(re.escape, sorted(classes)))})\b(?!\s*;)[^;{{()]*\{{"
    )
    functions = {name.split("::")[-1] for name in names}
    # Declarations in namespaces begin in the first column.
    call = re.compile(
        r"^(?:(?!return\b|#)[A-Za-z_][\w:<>,&* ]*[ &*])?"
        rf"({'|'.join(map(re.escape, sorted(functions)))})\s*\(",
        re.MULTILINE,
    )
    defined: dict[str, list[tuple[str, str]]] = collections.defaultdict(list)
    called: dict[str, list[tuple[str, str]]] = collections.defaultdict(list)
    for header, text in headers:
        for word in set(definition.findall(text)):
            defined[word].append((header, text))
        for word in set(call.findall(text)):
            called[word].append((header, text))
    found: dict[str, str] = {}
    for name in names:
        parts = name.split("::")
        member = re.compile(rf"\b{re.escape(parts[-1])}\b")
        candidates = [*defined[parts[-1]], *(defined[parts[-2]] if len(parts) > 1 else [])]
        within = [(h, t) for h, t in candidates if member.search(t) and _has_namespace(t, parts)]
        free = [(h, t) for h, t in called[parts[-1]] if _has_namespace(t, parts)]
        best = sorted((h for h, _ in within or free), key=_rank)
        if best:
            found[name] = best[0]
    return found


def _has_namespace(text: str, parts: list[str]) -> bool:
    return len(parts) < 2 or re.search(rf"\bnamespace (?:\w+::)*{parts[0]}\b", text) is not None


def _rank(header: str) -> tuple[bool, int, str]:
    # Ours hides TensorFlow's.
    return (not header.startswith(_HAND_MADE), len(header), header)


def compare(
    needed: set[str], offered: set[str], headers: Iterable[tuple[str, str]]
) -> tuple[list[Missing], collections.Counter[str]]:
    """Returns what is missing, and how many symbols of each library recompiling fixes."""
    names = demangle(sorted(needed - offered))
    following: collections.Counter[str] = collections.Counter()
    qualified = {}
    for symbol, name in names.items():
        short = qualified_name(name)
        library = next((n for n in FOLLOWING if short.startswith(f"{n}::")), None)
        if short.startswith("AbslInternal"):
            library = "absl"
        elif library is None and "google::protobuf::Arena*" in name:
            # A constructor of a message, which its generated header calls.
            library = "google::protobuf"
        if library is None:
            qualified[symbol] = short
        else:
            following[library] += 1
    if not qualified:
        return [], following
    alike = _exported_alike(set(qualified.values()), offered)
    for symbol, short in list(qualified.items()):
        unversioned = _VERSION.sub("", names[symbol])
        if any(_VERSION.sub("", other) == unversioned for other in alike.get(short, ())):
            following["absl"] += 1
            del qualified[symbol]
    places = find_headers(set(qualified.values()), headers)
    missing = [
        Missing(names[symbol], places.get(short, _namespace(short)), alike.get(short, ()))
        for symbol, short in qualified.items()
    ]
    return sorted(missing, key=lambda item: (_rank(item.header), item.name)), following


def _namespace(name: str) -> str:
    spaces = [part for part in name.split("::")[:-1] if part and part[0].islower()]
    return f"namespace {'::'.join(spaces) or 'none'}"


def _exported_alike(names: set[str], offered: set[str]) -> Mapping[str, tuple[str, ...]]:
    """Returns the exported functions under each of the qualified names."""
    words = sorted({name.split("::")[-1].lstrip("~") for name in names})
    mangled = re.compile("|".join(f"{len(word)}{re.escape(word)}" for word in words))
    found: dict[str, set[str]] = collections.defaultdict(set)
    for name in demangle(sorted(filter(mangled.search, offered))).values():
        short = qualified_name(name)
        if short in names and not _SPECIAL.match(name):
            found[short].add(name)
    return {name: tuple(sorted(others)) for name, others in found.items()}


def report(missing: list[Missing], following: Mapping[str, int]) -> Iterator[str]:
    """Yields the lines to print."""
    header = None
    for item in missing:
        if item.header != header:
            header = item.header
            by_hand = header.startswith(_HAND_MADE)
            yield header + (" (declared by hand: compiling does not tell)" if by_hand else "")
        yield f"  {'changed' if item.others else 'gone':8}{item.name}"
        yield from (f"          there: {other}" for other in item.others[:3])
    for library, count in sorted(following.items()):
        yield f"{count} symbols with names of {library} follow from its headers"


def main() -> None:
    """Prints what is missing; the exit code is 1 if anything is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tensorflow", type=pathlib.Path, help="where the other TensorFlow is")
    parser.add_argument(
        "--library", type=pathlib.Path, default=ROOT / "tf_tpu_ext" / ninja_build.LIBRARY
    )
    parser.add_argument(
        "--built-against", type=pathlib.Path, help="where the library's TensorFlow is"
    )
    options = parser.parse_args()
    try:
        if not options.library.exists():
            raise RuntimeError(f"There is no {options.library}. Run: python tools/ninja_build.py")
        if options.built_against is None:
            own = tf_config.find_tensorflow().root
        else:
            own = find_tensorflow(options.built_against)
        other = find_tensorflow(options.tensorflow)
    except RuntimeError as error:
        sys.exit(str(error))
    needed = needs(options.library, exports(own))
    headers = reached_headers(ROOT, own / "include")
    missing, following = compare(needed, exports(other), headers)
    print("\n".join(report(missing, following)), end="\n" if missing or following else "")
    lacking = len(missing) + sum(following.values())
    print(f"{lacking} of {len(needed)} symbols are missing in {other}")
    sys.exit(1 if lacking else 0)


if __name__ == "__main__":
    main()
