"""Cut values into parts that are kept once, and put them together again.

A list is cut into its elements, a larger dict into its values. Lists of parts are trees whose nodes end where an
element's hash says so and not after a fixed number: a longer list shares all nodes but the last ones with the shorter
one, and a list whose beginning was dropped shares the rest. So a turn of a conversation costs what is new in it,
however long the conversation is.

A *reference* is JSON: see docs/format.md, Threads.

What was read or written is remembered, and handed out as copies only: a state that its owner changes in place must not
change what another one gets. (The states of one listing share their messages: they have one owner.) A copy that nobody
has any more is handed out again, with its fields as they were: a turn of a long conversation would otherwise make
thousands of objects, and the collector of garbage looks at them all. An object that is stored again is recognised by
being the same object with the same fields; anything else about it would have to be written out to be compared. Its
owner may change it in another thread while it is stored: it is remembered only if its fields are the same before and
after it was written out. Long lists do both for many messages at a time (runs.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast
from weakref import ref as weak

from reprieve.errors import StoreCorrupted
from reprieve.store.thread_protocol import ThreadStore
from reprieve.store.thread_sealed import naming
from reprieve.threads.models import SIMPLE, Original, fields_of
from reprieve.threads.runs import SIZE, Runs
from reprieve.threads.values import Plain, Types, dumps, loads

Reference = Any
_Kept = tuple[Callable[[Any], Any] | None, Any]  # how to copy a value (None: it can be shared), and what
_INLINE = 64  # bytes of JSON that are not worth a part
_SHORT = 8  # elements of a list that are not worth a tree
_WIDE = 1024  # bytes from which a dict is cut
# A node ends after one in 8 elements, and after 32 anyway. Every turn writes the last node of each level anew: with one
# in 32 a turn added 12 kB at 100 turns and 15 kB at 2,000.
_MASK, _MOST = 7, 32
_REMEMBERED = 16384
_VALUE, _NODE, _DICT = b"V", b"N", b"D"


class Parts:
    """Writes and reads values of one store. May be used from several threads at once."""

    def __init__(self, store: ThreadStore, types: Types) -> None:
        self._store = store
        self.types = types
        self.name = naming(store)
        self._texts: dict[str, bytes] = {}  # hash of the part that is this text
        self._objects: dict[int, tuple[Callable[[], object], bytes, tuple[object, ...]]] = {}  # by id()
        self._values: dict[bytes, _Kept] = {}
        self._runs = Runs()
        self._nodes: dict[bytes, tuple[int, list[bytes]]] = {}
        # the newest long list: its elements, and where its first nodes end. The next one mostly begins with it.
        self._newest: tuple[list[bytes], list[tuple[int, bytes]]] = ([], [])

    def with_types(self, types: Types) -> Parts:
        """The same store, read and written with other types."""
        return Parts(self._store, types)

    # -- writing

    def encode(self, value: Any, out: dict[bytes, bytes], known: set[bytes]) -> Reference:
        """A reference to the value. Parts that are not in `known` are added to `out`."""
        cls = type(value)
        if cls is list:
            return self._encode_list(value, out, known)
        if cls is dict:
            return self._encode_dict(value, out, known)
        if cls in self.types.wrapped:
            wrapper = self.types.wrapped[cls]
            return {"w": wrapper.tag, "r": self.encode(wrapper.unwrap(value), out, known)}
        if cls is str and len(value) > _INLINE:
            return self._element(value, out, known).hex()
        plain = self.types.plain(value)
        body = dumps(plain)
        if len(body) <= _INLINE:
            return [plain]
        return self._add(_VALUE + body, out, known).hex()

    def _encode_list(self, value: list[Any], out: dict[bytes, bytes], known: set[bytes]) -> Reference:
        if len(value) <= _SHORT:
            return {"l": [self.encode(item, out, known) if type(item) is not list else self._whole(item, out, known)
                          for item in value]}  # fmt: skip
        hashes = self._elements_of(value, out, known)
        level, hashes = 0, self._leaves(hashes, out, known)
        while len(hashes) > 1:
            level += 1
            hashes = [self._add_node(level, run, out, known) for run in _runs(hashes)]
        return {"n": hashes[0].hex()}

    def _elements_of(self, value: list[Any], out: dict[bytes, bytes], known: set[bytes]) -> list[bytes]:
        hashes: list[bytes] = []
        objects, models, same = self._objects, self.types.models, self._runs.same
        at = 0
        # the last ones that are remembered, but in no run yet: themselves, and their fields as they were stored
        last: list[Any] = []
        fields: list[tuple[object, ...]] = []
        while at < len(value):
            item = value[at]
            if type(item) not in models:
                hashes.append(self._element(item, out, known))
                at, last, fields = at + 1, [], []
                continue
            run = same(value, at)
            if run is not None and known.issuperset(run):
                hashes += run
                at, last, fields = at + SIZE, [], []
                continue
            hash = self._element(item, out, known)
            hashes.append(hash)
            at += 1
            found = objects.get(id(item))
            if found is None or found[0]() is not item or found[1] != hash:
                last, fields = [], []
                continue
            last.append(item)
            fields.append(found[2])
            if len(last) == SIZE:
                self._runs.remember(hashes[-SIZE:], last, fields)
                last, fields = [], []
        return hashes

    def _leaves(self, hashes: list[bytes], out: dict[bytes, bytes], known: set[bytes]) -> list[bytes]:
        """The lowest nodes of a tree. Those that the newest list has as well need not be hashed again."""
        before, ends = self._newest
        same = [(end, hash) for end, hash in ends if hash in known] if hashes[: len(before)] == before else []
        if len(same) < len(ends):
            same = []
        start = same[-1][0] if same else 0
        made = list(same)
        for run in _runs(hashes[start:]):
            start += len(run)
            made.append((start, self._add_node(0, run, out, known)))
        self._newest = (hashes, made[:-1])  # the last one may not have ended
        return [hash for _, hash in made]

    def _encode_dict(self, value: dict[Any, Any], out: dict[bytes, bytes], known: set[bytes]) -> Reference:
        plain = self.types.plain(value)
        body = dumps(plain)
        if len(body) <= _INLINE:
            return [plain]
        if len(body) < _WIDE or "$" in plain:
            return self._add(_VALUE + body, out, known).hex()
        cut = {key: self._part_of_dict(item, out, known) for key, item in value.items()}
        return {"d": self._add(_DICT + dumps(cut), out, known).hex()}

    def _part_of_dict(self, item: Any, out: dict[bytes, bytes], known: set[bytes]) -> Reference:
        return self._encode_list(item, out, known) if type(item) is list else self._whole(item, out, known)

    def _whole(self, item: Any, out: dict[bytes, bytes], known: set[bytes]) -> Reference:
        plain = self.types.plain(item)
        body = dumps(plain)
        return [plain] if len(body) <= _INLINE else self._add(_VALUE + body, out, known).hex()

    def _element(self, item: Any, out: dict[bytes, bytes], known: set[bytes]) -> bytes:
        cls = type(item)
        fields = None
        if cls is str:
            hash = self._texts.get(item)
            if hash is not None and (hash in known or hash in out):
                return hash
        elif cls in self.types.models:
            found = self._objects.get(id(item))
            fields = fields_of(item)
            if found is not None and found[0]() is item and fields == found[2]:
                hash = found[1]
                if hash in known or hash in out:
                    return hash
        hash = self._add(_VALUE + dumps(self.types.plain(item)), out, known)
        if cls is str:
            _remember(self._texts, item, hash)
        elif fields is not None and fields_of(item) == fields:
            _remember(self._objects, id(item), (weak(item), hash, fields))
        return hash

    def _add_node(self, level: int, run: list[bytes], out: dict[bytes, bytes], known: set[bytes]) -> bytes:
        hash = self._add(_NODE + bytes((level,)) + b"".join(run), out, known)
        if hash not in self._nodes:
            _remember(self._nodes, hash, (level, run))
        return hash

    def _add(self, body: bytes, out: dict[bytes, bytes], known: set[bytes]) -> bytes:
        hash = self.name(body)
        if hash not in known:
            out[hash] = body
        return hash

    # -- reading

    def decode(
        self, reference: Reference, known: set[bytes] | None = None, shared: dict[bytes, Any] | None = None
    ) -> Any:
        """The value, the caller's own. `known` learns the parts it has: for one that may be stored again soon.

        `shared`: messages that are in there are taken from there, and new ones are added. Raises StoreCorrupted.
        """
        if type(reference) is list:
            return self.types.revive(reference[0])
        if type(reference) is str:
            hash = _hash(reference)
            if known is not None:
                known.add(hash)
            return self._take([hash], known is not None, shared)[0]
        if "l" in reference:
            return [self.decode(item, known, shared) for item in reference["l"]]
        if "n" in reference:
            hashes = self._elements(_hash(reference["n"]), known)
            if known is not None:
                known.update(hashes)
                if shared is None:
                    return self._take_runs(hashes)
            return self._take(hashes, known is not None, shared)
        if "d" in reference:
            hash = _hash(reference["d"])
            if known is not None:
                known.add(hash)
            cut = loads(self.bodies([hash])[hash][1:])
            return {key: self.decode(item, known, shared) for key, item in cut.items()}
        if reference.get("w") in self.types.wrappers:
            return self.types.wrappers[reference["w"]].wrap(self.decode(reference["r"], known, shared))
        raise StoreCorrupted(f"a reference cannot be read: {str(reference)[:80]!r}")

    def plain(self, reference: Reference) -> Plain:
        """What a reference leads to as JSON, without making objects of it: for people and for programs without them."""
        if type(reference) is list:
            return reference[0]
        if type(reference) is str:
            hash = _hash(reference)
            return loads(self.bodies([hash])[hash][1:])
        if "l" in reference:
            return [self.plain(item) for item in reference["l"]]
        if "n" in reference:
            hashes = self._elements(_hash(reference["n"]), None)
            bodies = self.bodies(hashes)
            return [loads(bodies[hash][1:]) for hash in hashes]
        if "w" in reference:
            return self.plain(reference["r"])
        hash = _hash(reference["d"])
        return {key: self.plain(item) for key, item in loads(self.bodies([hash])[hash][1:]).items()}

    def elements(self, reference: Reference) -> list[bytes]:
        """The parts that are the elements of a list that was cut."""
        return self._elements(_hash(reference["n"]), None)

    def reach(self, references: Iterable[Reference]) -> set[bytes]:
        """All parts that these references need."""
        found: set[bytes] = set()
        todo = list(references)
        while todo:
            reference = todo.pop()
            if type(reference) is str:
                found.add(_hash(reference))
            elif type(reference) is dict and "l" in reference:
                todo += reference["l"]
            elif type(reference) is dict and "w" in reference:
                todo.append(reference["r"])
            elif type(reference) is dict and "n" in reference:
                root = _hash(reference["n"])
                if root not in found:
                    found.update(self._elements(root, found))
            elif type(reference) is dict and "d" in reference:
                hash = _hash(reference["d"])
                if hash not in found:
                    found.add(hash)
                    todo += loads(self.bodies([hash])[hash][1:]).values()
        return found

    def _elements(self, root: bytes, known: set[bytes] | None) -> list[bytes]:
        hashes = [root]
        while True:
            missing = [hash for hash in hashes if hash not in self._nodes]
            if missing:
                for hash, body in self.bodies(missing).items():
                    _remember(self._nodes, hash, _node(hash, body))
            try:
                nodes = [self._nodes[hash] for hash in hashes]
            except KeyError:
                continue  # forgotten by another thread meanwhile
            if known is not None:
                known.update(hashes)
            hashes = [below for _, run in nodes for below in run]
            if nodes[0][0] == 0:
                return hashes

    def decode_all(self, references: Iterable[Reference], shared: dict[bytes, Any] | None = None) -> list[Any]:
        """Many values at once: thousands of short lists of messages, read and made in one go."""
        todo = list(references)
        hashes: list[bytes] = []
        for reference in todo:
            if type(reference) is str:
                hashes.append(_hash(reference))
            elif type(reference) is dict and "l" in reference:
                hashes += [_hash(item) for item in reference["l"] if type(item) is str]
        ready = iter(self._take(hashes, False, shared))
        made: list[Any] = []
        for reference in todo:
            if type(reference) is str:
                made.append(next(ready))
            elif type(reference) is dict and "l" in reference:
                made.append(
                    [next(ready) if type(item) is str else self.decode(item, None, shared) for item in reference["l"]]
                )
            else:
                made.append(self.decode(reference, None, shared))
        return made

    def _take_runs(self, hashes: list[bytes]) -> list[Any]:
        """As `_take`, to be remembered, but most of a long list in runs."""
        made: list[Any] = []
        single: list[bytes] = []  # that come next and are in no run
        at = 0
        while at < len(hashes):
            lent = self._runs.lend(hashes, at)
            if lent is None:
                single.append(hashes[at])
                at += 1
                if len(single) == SIZE:
                    made += self._new_run(single)
                    single = []
                continue
            if single:
                made += self._take(single, True, None)
                single = []
            made += lent
            at += SIZE
        return made + self._take(single, True, None)

    def _new_run(self, hashes: list[bytes]) -> list[Any]:
        found = self._found(hashes)
        if any(copy is not Original.lend for copy, _ in found):
            return self._take(hashes, True, None)
        copies = [original.copy() for _, original in found]
        for hash, (_, original), one in zip(hashes, found, copies, strict=True):
            self._objects[id(one)] = (weak(one), hash, original.fields)
        _trim(self._objects)
        return self._runs.add(hashes, copies)

    def _take(self, hashes: list[bytes], remember: bool, shared: dict[bytes, Any] | None) -> list[Any]:
        made = []
        objects, lend = self._objects, Original.lend
        for hash, (copy, original) in zip(hashes, self._found(hashes), strict=True):
            if copy is lend:
                one = shared.get(hash) if shared is not None else None
                if one is None:
                    one = original.lend()
                    if remember:
                        objects[id(one)] = (original.weak, hash, original.fields)
                    if shared is not None:
                        shared[hash] = one
                made.append(one)
            elif copy is None:
                made.append(original)
            else:
                made.append(copy(original))
        if remember:
            _trim(objects)
        return made

    def _found(self, hashes: list[bytes]) -> list[_Kept]:
        found = [*map(self._values.get, hashes)]
        if None in found:
            fresh = self._read([hash for hash, one in zip(hashes, found, strict=True) if one is None])
            found = [one or fresh[hash] for hash, one in zip(hashes, found, strict=True)]
        return cast("list[_Kept]", found)

    def _read(self, hashes: list[bytes]) -> dict[bytes, _Kept]:
        fresh = {hash: self._original(body) for hash, body in self.bodies(hashes).items()}
        self._values.update(fresh)
        _trim(self._values)
        return fresh

    def _original(self, body: bytes) -> _Kept:
        plain = loads(body[1:])
        value = self.types.revive(plain)
        cls = type(value)
        if cls in SIMPLE:
            return None, value
        if cls in self.types.models:
            fields = fields_of(value)
            if fields is not None and value.__pydantic_private__ is None:
                return Original.lend, Original(value, fields)
        # nothing else is worth a copier of its own: it is made anew from its JSON
        return self.types.revive, plain

    def bodies(self, hashes: list[bytes]) -> dict[bytes, bytes]:
        """Parts as they are stored, each checked. Raises StoreCorrupted."""
        wanted = list(dict.fromkeys(hashes))
        found = self._store.parts(wanted)
        for hash in wanted:
            if hash not in found:
                raise StoreCorrupted(
                    f"part {hash.hex()[:16]} of a thread is missing", hints=["see: reprieve thread verify"]
                )
            if self.name(found[hash]) != hash:
                raise StoreCorrupted(
                    f"part {hash.hex()[:16]} of a thread is damaged", hints=["see: reprieve thread verify"]
                )
        return found


def _runs(hashes: list[bytes]) -> list[list[bytes]]:
    runs: list[list[bytes]] = []
    start = 0
    for at, hash in enumerate(hashes, 1):
        if hash[0] & _MASK == 0 or at - start >= _MOST:
            runs.append(hashes[start:at])
            start = at
    if start < len(hashes):
        runs.append(hashes[start:])
    return runs


def _node(hash: bytes, body: bytes) -> tuple[int, list[bytes]]:
    if body[:1] != _NODE or (len(body) - 2) % 32 or len(body) < 34:
        raise StoreCorrupted(f"part {hash.hex()[:16]} of a thread is no list")
    return body[1], [body[at : at + 32] for at in range(2, len(body), 32)]


def _hash(text: object) -> bytes:
    try:
        return bytes.fromhex(str(text))
    except ValueError as exc:
        raise StoreCorrupted(f"a reference cannot be read: {str(text)[:80]!r}") from exc


def _remember(memory: dict[Any, Any], key: Any, value: Any) -> None:
    memory[key] = value
    _trim(memory)


def _trim(memory: dict[Any, Any]) -> None:
    """Forget the older half when it gets too much; a dict keeps its order."""
    if len(memory) > _REMEMBERED:
        for key in list(memory)[: _REMEMBERED // 2]:
            memory.pop(key, None)
