"""Loads the native library, after checking that it can work.

The library registers devices, kernels and graph passes in static initializers. Anything that would
make it crash or have no effect is therefore checked first: a TensorFlow that drives a real TPU or
differs from the one it was compiled for, and devices that TensorFlow has already created.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.metadata
import json
import logging
import os
import re
import sys
import threading
from typing import Any

from tf_tpu_ext import _library, _real_tpu
from tf_tpu_ext._version import VERSION

_log = logging.getLogger("tf_tpu_ext")
_lock = threading.Lock()


class _State:
    """The result of loading the library in this process."""

    library: ctypes.CDLL | None = None
    file: _library.Library | None = None
    aside: _real_tpu.Choice | None = None


_state = _State()


def load() -> bool:
    """Loads the native library, unless TensorFlow drives a real TPU here.

    Further calls return the same value at no cost.

    Returns:
        True if the library is loaded, False if the package stepped aside for a real TPU.

    Raises:
        ImportError: TensorFlow or the library is missing, their versions do not match, or
            TensorFlow has TPU kernels of its own and no TPU.
        RuntimeError: TensorFlow has already created its devices.
        ValueError: The environment variable `TF_TPU_EXT_TPU` has an invalid value.

    Example:
        >>> from tf_tpu_ext import _native
        >>> _native.load()
        True
        >>> _native.is_loaded()
        True
    """
    with _lock:
        if _state.library is not None:
            return True
        if _state.aside is not None or _steps_aside(_choose()):
            return False
        # Comes first, because the builds record which TensorFlow they need.
        libraries = _find_libraries()
        tensorflow = _import_tensorflow(libraries)
        file = _choose_library(libraries, tensorflow.__version__)
        if not _is_resident(file):
            choice = _choose(_tensorflow_has_kernels(), _find_tensorflow_tpu())
            if _steps_aside(choice):
                return False
            _check_no_devices(tensorflow)
            _log.info("tf_tpu_ext adds virtual cores: %s", choice.because)
        _open(file, tensorflow)
        _state.library, _state.file = ctypes.CDLL(str(file.path)), file
        _state.library.TfTpuExt_SetVersions(VERSION.encode(), tensorflow.__version__.encode())
        refresh_physical_devices()
        return True


def is_loaded() -> bool:
    """Returns whether the library is loaded in this process, without loading it."""
    return _state.library is not None


def stepped_aside() -> bool:
    """Returns whether the package stepped aside for a real TPU."""
    return _state.aside is not None


def available() -> bool:
    """Returns whether this process has virtual cores. The same as `load()`."""
    return load()


def library() -> ctypes.CDLL:
    """Returns the library, for calls to its `TfTpuExt_*` functions. Loads it if needed.

    Raises:
        ImportError: As for `load`.
        RuntimeError: As for `load`, or because the package stepped aside for a real TPU.
    """
    load()
    if _state.library is None:
        raise RuntimeError(_aside_message())
    return _state.library


def text_of(function: str, *arguments: Any) -> str | None:
    """Calls a function of the library that returns a C string, and frees the string.

    Args:
        function: The name of the function, `TfTpuExt_...`.
        *arguments: Its arguments, as `ctypes` values.

    Returns:
        The text, or None if the function returns null.

    Raises:
        ImportError: As for `load`.
        RuntimeError: As for `library`.
    """
    call = getattr(library(), function)
    # ctypes would convert a `c_char_p` to bytes and lose the address of the memory to free.
    call.restype = ctypes.c_void_p
    address = call(*arguments)
    if not address:
        return None
    try:
        return ctypes.string_at(address).decode(errors="replace")
    finally:
        library().TfTpuExt_Free(ctypes.c_void_p(address))


def json_of(function: str) -> Any:
    """Returns the parsed JSON from a function of the library, or None if it returns null."""
    return json.loads(text_of(function) or "null")


def library_file() -> _library.Library | None:
    """Returns the library of this process, or None if none is loaded."""
    return _state.file


def _aside_message() -> str:
    assert _state.aside is not None
    return (
        f"tf_tpu_ext has no virtual cores in this process: {_state.aside.because}, so TensorFlow's "
        f"own TPU support is left unchanged. {_state.aside.advice}"
    )


def _choose(kernels: bool | None = None, device: str | None = None) -> _real_tpu.Choice:
    return _real_tpu.choose(kernels, device, os.environ.get(_real_tpu.VARIABLE))


def _steps_aside(choice: _real_tpu.Choice) -> bool:
    """Returns whether the choice is a real TPU, and remembers the answer.

    Raises:
        ImportError: Neither virtual cores nor a real TPU can be used.
    """
    if choice.tpu == "virtual":
        return False
    if choice.tpu == "none":
        raise ImportError(f"tf_tpu_ext can't add virtual cores: {choice.because}. {choice.advice}")
    _state.aside = choice
    _log.warning("%s", _aside_message())
    return True


def _eager_context() -> Any | None:
    """Returns TensorFlow's eager context, or None if it has not been created."""
    return importlib.import_module("tensorflow.python.eager.context").context_safe()


def _find_tensorflow_tpu() -> str | None:
    """Returns the name of a TPU in TensorFlow's list of devices, or None if there is none."""
    context = _eager_context()
    listed = getattr(context, "_physical_devices", None) or []
    return next((device.name for device in listed if device.device_type == "TPU"), None)


def _tensorflow_has_kernels() -> bool:
    """Returns whether TensorFlow has its own TPU kernels, which ours would collide with."""
    kernels = importlib.import_module("tensorflow.python.framework.kernels")
    return bool(kernels.get_registered_kernels_for_op("TPUExecute").kernel)


def _tensorflow_distribution() -> str:
    """Returns the name of the distribution that installed TensorFlow."""
    names = importlib.metadata.packages_distributions().get("tensorflow", [])
    # If both are installed, pip modifies the plain one last.
    return "tensorflow" if "tensorflow" in names else "tensorflow-cpu"


def _import_tensorflow(libraries: list[_library.Library]) -> Any:
    collects = gc.isenabled()
    # Almost nothing that the import creates is garbage: looking for it costs a fifth of the time.
    gc.disable()
    try:
        return importlib.import_module("tensorflow")
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        minors = sorted(library.minor for library in libraries)
        raise ImportError(
            f"tf_tpu_ext needs TensorFlow {' or '.join(minors)}, found none for {sys.executable}. "
            f"Run: pip install 'tensorflow-cpu=={minors[-1]}.*'"
        ) from error
    finally:
        if collects:
            gc.enable()


def _build_command() -> str:
    checkout = _library.PACKAGE.parent
    if (checkout / "tools" / "ninja_build.py").exists():
        return f"python {checkout / 'tools' / 'ninja_build.py'}"
    return "pip install --force-reinstall --no-deps --no-cache-dir ."


def _find_libraries() -> list[_library.Library]:
    libraries = _library.find_all()
    if libraries:
        return libraries
    folder = _library.PACKAGE
    missing = _library.RECORD if (folder / _library.NAME).exists() else _library.NAME
    others = "".join(
        f", and {version} is installed in {package}, which is another version"
        for package, version in _library.installed_packages()
    )
    raise ImportError(
        f"The native library of tf_tpu_ext is not built: expected {missing} in {folder}, found "
        f"none{others}. In a checkout of tf_tpu_ext, run: {_build_command()}"
    )


def _choose_library(libraries: list[_library.Library], found: str) -> _library.Library:
    minor = _library.minor_of(found)
    for library in libraries:
        if library.minor == minor:
            return library
    built = sorted(libraries, key=lambda library: library.version)
    versions = " and ".join(f"{library.minor} ({library.version})" for library in built)
    raise ImportError(
        f"tf_tpu_ext was built for TensorFlow {versions}, found TensorFlow {minor} ({found}), "
        "whose C++ interface differs. "
        f"Run: pip install '{_tensorflow_distribution()}=={built[-1].minor}.*'"
    )


def _sessions_made() -> int:
    session = importlib.import_module("tensorflow.python.client.session")
    return int(session._python_session_create_counter.get_cell().value())


def _check_no_devices(tensorflow: Any) -> None:
    context = _eager_context()
    initialized = context is not None and context._initialized
    if not initialized and _sessions_made() == 0:
        return
    what = "has run its first operation" if initialized else "has opened a session"
    raise RuntimeError(
        f"tf_tpu_ext was imported too late: TensorFlow {tensorflow.__version__} {what} and has "
        "created its devices, so virtual TPU cores can't be added. Expected an earlier import. "
        "Move `import tf_tpu_ext` to the top of the program, next to `import tensorflow`, above "
        "the first tensor, variable, strategy, session or tf.config.list_logical_devices()."
    )


def _is_resident(library: _library.Library) -> bool:
    """Returns whether the process already has the library, as after importlib.reload."""
    try:
        ctypes.CDLL(str(library.path), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return False
    return True


def _open(library: _library.Library, tensorflow: Any) -> None:
    try:
        # Not load_op_library, which spends 0.1 s on Python functions for ops that only C++ uses.
        tensorflow.load_library(str(library.path))
    except tensorflow.errors.OpError as error:
        reason = _open_failure(library, error.message, tensorflow.__version__)
        raise ImportError(reason) from error


def _open_failure(library: _library.Library, reason: str, found: str) -> str:
    symbol = re.search(r"undefined symbol: (\S+)", reason)
    if symbol is None:
        return (
            f"{library.path.name} can't be loaded: {reason}. "
            f"Build it again. In a checkout of tf_tpu_ext, run: {_build_command()}"
        )
    return (
        f"{library.path.name} needs the symbol {symbol[1]}, which TensorFlow {found} does not "
        f"have: the library was built for TensorFlow {library.version}, perhaps with other files "
        "than the installed ones. Build it again for the installed TensorFlow. In a checkout of "
        f"tf_tpu_ext, run: {_build_command()}"
    )


def refresh_physical_devices() -> None:
    """Adds our devices to TensorFlow's list of physical devices, if that list already exists.

    TensorFlow lists the devices once and keeps the list. Devices that the program has hidden stay
    hidden.
    """
    context = _eager_context()
    if context is None or context._physical_devices is None:
        return
    hidden = set(context._physical_devices) - set(context._visible_device_list)
    growth = context._memory_growth_map
    context.reinitialize_physical_devices()
    context._visible_device_list = [
        device for device in context._physical_devices if device not in hidden
    ]
    context._memory_growth_map.update(growth)
