"""One file with the bytecode of all modules that hooks load, instead of one for each: 3 ms that every hook would pay.

It lies beside Python's own bytecode, in `__pycache__`, is trusted as much as that and made from it, by the first hook
that misses it. Code from it is used only as long as the source is the very file that it was made for, unchanged: inode,
size and both times. Python itself goes by the size and the second alone. What is not in it, or not so any more, Python
loads as ever.

    magic | length | {module: (file, is it a package, proof, offset, length)} | code | code | …
"""

from __future__ import annotations

import _frozen_importlib_external as importing
import _imp
import marshal
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType

    Proof = tuple[int, int, int, int]
    Known = dict[str, tuple[str, bool, Proof, int, int]]

_PACKAGE = "reprieve"
_MAGIC = b"RPHOT001" + importing.MAGIC_NUMBER.ljust(8)
_START = len(_MAGIC) + 8
_WORTH = 5  # modules that were not in it, before it is made anew
_SETTLED_NS = 600_000_000_000


class _Loader(importing.SourceFileLoader):
    """As Python's, with the code at hand."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, name: str) -> CodeType:
        return self._code


class Hot:
    """Finds modules in the file, if there is one."""

    def __init__(self, package: ModuleType) -> None:
        self._base = os.path.dirname(package.__file__ or "")
        self._path = _path(self._base)
        self._before = set(sys.modules)
        self._known: Known = {}
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # not made yet
        start = os.read(self._fd, _START)
        length = int.from_bytes(start[len(_MAGIC) :], "little")
        self._first = _START + length
        if start[: len(_MAGIC)] == _MAGIC:
            self._known = marshal.loads(os.pread(self._fd, length, _START))

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """For the interpreter, when something is imported."""
        if name not in self._known:
            return None
        file, is_package, proof, at, length = self._known[name]
        file = os.path.join(self._base, file)
        try:
            if _proof(os.stat(file)) != proof:
                return None
        except OSError:
            return None  # no longer there, or not for us: Python will say so
        code = marshal.loads(os.pread(self._fd, length, self._first + at))
        _imp._fix_co_filename(code, file)  # type: ignore[attr-defined]
        folder = [os.path.dirname(file)] if is_package else None
        return importing.spec_from_file_location(
            name, file, loader=_Loader(name, file, code), submodule_search_locations=folder
        )

    def keep(self) -> None:
        """Make the file anew if it lacks much of what this process has loaded. For the end of a process."""
        if sys.dont_write_bytecode or not os.access(os.path.dirname(self._path), os.W_OK):
            return
        ours = [name for name in sys.modules if name.startswith(_PACKAGE + ".") and name not in self._before]
        missed = [name for name in ours if not isinstance(sys.modules[name].__loader__, _Loader)]
        if len(missed) < _WORTH:
            return
        found = {}
        for name in sorted({*ours, *self._known}):
            file = os.path.join(self._base, *name.split(".")[1:])
            for source, is_package in ((file + ".py", False), (os.path.join(file, "__init__.py"), True)):
                try:
                    found[name] = (os.path.relpath(source, self._base), is_package, *_compiled(source))
                except (OSError, ValueError):
                    continue  # no such file, or no bytecode of it that would do
        if len(found.keys() & set(missed)) < _WORTH:
            return
        try:
            _write(self._path, found)
        except OSError:
            return  # read-only, or full: it is only speed


def install() -> Hot:
    """From now on modules come from the file."""
    hot = Hot(sys.modules[_PACKAGE])
    sys.meta_path.insert(0, hot)
    return hot


def _path(base: str) -> str:
    return f"{base}/__pycache__/hot.{sys.implementation.cache_tag}-{sys.flags.optimize}"


def _proof(st: os.stat_result) -> Proof:
    return st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns


def _compiled(source: str) -> tuple[Proof, bytes]:
    """What Python would run for a source, and by what to know that it is still that. Raises OSError or ValueError."""
    st = os.stat(source)
    cached = importing.cache_from_source(source)
    with open(cached, "rb") as file:
        made = os.fstat(file.fileno())
        data = file.read()
    wanted = importing.MAGIC_NUMBER + bytes(4) + _four(int(st.st_mtime)) + _four(st.st_size)
    if data[:16] != wanted:
        raise ValueError("not of this source")
    # An installation may be under way: new sources, old bytecode, and times that were made equal for reproducibility.
    if made.st_ctime_ns < st.st_ctime_ns and time.time_ns() - st.st_ctime_ns < _SETTLED_NS:
        raise ValueError("too new")
    if _proof(os.stat(source)) != _proof(st):
        raise ValueError("being written")
    return _proof(st), data[16:]


def _four(number: int) -> bytes:
    return (number & 0xFFFFFFFF).to_bytes(4, "little")


def _write(path: str, found: dict[str, tuple[str, bool, Proof, bytes]]) -> None:
    listed: Known = {}
    at = 0
    for name, (file, is_package, proof, code) in found.items():
        listed[name] = (file, is_package, proof, at, len(code))
        at += len(code)
    head = marshal.dumps(listed)
    data = b"".join([_MAGIC, len(head).to_bytes(8, "little"), head, *(code for *_, code in found.values())])
    temporary = f"{path}.{os.getpid()}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(fd, left) :]
            os.fsync(fd)  # half of it must not be there after a power cut: it would be run
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
