"""A protected tree: its last known state, its state now, and the step from one to the other onto the timeline."""

from __future__ import annotations

import os

from reprieve.errors import StoreCorrupted, StoreFailed
from reprieve.files import native, told, tree
from reprieve.files.attribution import altered, author_now, closed, last_standing, opened
from reprieve.files.content import WHOLE, read
from reprieve.files.index import Loaded, index_tag, load_index, rebuild, retag, save_index
from reprieve.files.snapshot import Limits, Snapshot, take_snapshot
from reprieve.files.worktree import linked_outside
from reprieve.model.change import Gap, how_to_open
from reprieve.model.chunks import encode_chunks
from reprieve.model.timeline import CHECKPOINT, FORGET, Draft, TimelineEntry
from reprieve.model.tracked import names_in, with_names
from reprieve.model.window import Standing, Window, with_standing
from reprieve.store.chain import damaged, is_sound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from reprieve.model.reporter import Reporter
    from reprieve.store.protocols import Buffer, Store

_PIECE = 1 << 20
_AMPLE = 64 << 20
_GIT_TRIES = 5
_TRIES = 5
_FULL_AFTER = 64  # deltas to walk before a full tree is kept as a shortcut


class Capture:
    """One workspace's tree and timeline. The caller holds the workspace's lock."""

    def __init__(
        self,
        root_fd: int,
        store: Store,
        workspace_id: str,
        *,
        root: bytes,
        index_path: str,
        limits: Limits,
        reporter: Reporter,
    ) -> None:
        self.root_fd, self.store, self.limits, self.reporter = root_fd, store, limits, reporter
        self.blobs, self.timeline = store.blobs, store.timeline(workspace_id)
        self.index_path, self.workspace_id = index_path, workspace_id
        self._root = root  # for people; everything is reached by `root_fd`
        self._mark: told.Mark | None = None  # of what was recorded last
        self._is_complete = False  # nothing was forgotten, as far as the last look could tell

    # -- now

    def look(self, *, keep: bool) -> Snapshot:
        """The tree now against the timeline's head; with `keep` its new content goes to the store."""
        head = self.timeline.tip()
        loaded = self._load(head)
        lost = self.blobs.damaged() | self._forgotten_by(loaded) if keep else set()
        put = self.blobs.put if keep else None

        def take(last: Buffer | None, truth: Buffer | None, since: told.Mark | None) -> Snapshot:
            return take_snapshot(
                self.root_fd,
                last=last,
                truth=truth,
                put=put,
                limits=self.limits,
                reporter=self.reporter,
                distrust=self._with_lists(lost, last),
                since=since,
            )

        try:
            for left in range(_TRIES, -1, -1):
                try:
                    seen = take(loaded.base, loaded.truth, loaded.mark)
                    break
                except ValueError:
                    if not left:
                        raise
                    # a damaged index, or names that changed places under our eyes: once more, from the timeline
                    loaded = rebuild(self.tree_at(head.seq), self._accepts()) if head is not None else loaded
            return self._with_worktree(self._until_git_rests(seen, loaded, take) if keep else seen)
        except ValueError as e:
            raise StoreFailed(
                f"the folder changes faster than it can be read ({e}); nothing was recorded",
                hints=["stop what is moving directories there and run the same command again"],
            ) from e
        except OSError as e:
            if not os.fstat(self.root_fd).st_nlink:
                raise StoreFailed(
                    "the folder itself was deleted; what was in it is kept",
                    hints=["make the folder again where it was, and in it: reprieve rollback"],
                ) from e
            hints = (
                [f"give yourself the right to it: {how_to_open(self._root)}"] if isinstance(e, PermissionError) else []
            )
            raise StoreFailed(f"the folder could not be read: {e.strerror or e}", hints=hints) from e
        finally:
            self.reporter.finished("checkpoint")

    def _with_worktree(self, seen: Snapshot) -> Snapshot:
        """Name what git keeps elsewhere, if the folder is a worktree of a repository outside of it."""
        if self.limits.only and b".git" not in self.limits.only:
            return seen
        elsewhere = linked_outside(os.fsencode(self._root))
        if not elsewhere:
            return seen
        reason = f"leads outside: git's HEAD, branches, index and stash are in {os.fsdecode(elsewhere)}"
        return seen.replace(gaps=(*seen.gaps, Gap(b".git", reason)))

    def _until_git_rests(
        self, seen: Snapshot, loaded: Loaded, take: Callable[[Buffer | None, Buffer | None, told.Mark | None], Snapshot]
    ) -> Snapshot:
        """Look again as long as a repository changes under our eyes: its refs must not name objects that we missed."""
        if not _changed_git(seen):
            return seen
        base = loaded.base if loaded.base is not None else tree.pack([])
        for _ in range(_GIT_TRIES):
            again = take(seen.index, loaded.truth if loaded.truth is not None else base, seen.mark)
            moving = [path for path, _, _ in tree.compare(seen.index, again.index) if _git_dir(path)]
            if not moving:
                return seen
            seen = again
        busy = sorted({_git_dir(path) for path in moving})
        self.reporter.warn("git is at work here; this checkpoint may hold a repository in the middle of a command")
        return seen.replace(gaps=(*seen.gaps, *(Gap(path, "git was at work in it") for path in busy)))

    def author(self) -> tuple[str, Standing, Standing]:
        """Who made what changed since the newest entry; what was going on after it, and what is now."""
        last = last_standing(self.timeline, self.timeline.head())
        actor, now = author_now(last)
        return actor, last, now

    def record(
        self,
        seen: Snapshot,
        draft: Draft,
        *,
        opens: Window | None = None,
        closes: str = "",
        left: tuple[tuple[int, int], ...] = (),
        alters: Window | None = None,
        keep_index: bool = True,
    ) -> TimelineEntry:
        """Put what was seen on the timeline; durable when this returns. A draft without an actor gets the author's.

        What the draft says of changed paths is what changed elsewhere, and is added to. Without `keep_index` the caller
        saves one, of a later entry, soon.
        """
        head = self.timeline.tip()
        actor, now = author_now(last_standing(self.timeline, head))
        if closes:
            now = closed(now, closes, left)
        if opens is not None:
            actor, now = opened(now, actor, opens)
        if alters is not None:
            now = altered(now, alters)
        data = with_names(draft.data, self.limits.only)
        data = with_standing(data, now, opens=opens.id if opens is not None else "", closes=closes)
        draft = draft.replace(actor=draft.actor or actor, data=data)
        with self.store.transaction():
            delta = self.with_stored_delta(seen).stored
            self.blobs.flush()
            files, size = (seen.files, seen.size) if seen.size >= 0 or head is None else (head.files, head.size)
            draft = draft.replace(delta=delta, files=files, size=size, changed=draft.changed + seen.changed)
            entry = self.timeline.append(draft)
            if self.blobs.damaged() or not self._is_sound(head):
                # the way to this tree may lead through damage: keep it whole, so that it can be restored
                self.keep_whole(entry, tree.without_stat(seen.index))
                self.blobs.flush()
        self._mark = seen.mark
        if keep_index:
            self.save(seen.index, entry, is_same=not delta and not seen.is_fresh)
        return entry

    def record_unchanged(self, draft: Draft, *, opens: Window) -> TimelineEntry:
        """Put an entry on the timeline whose tree is that of the newest one, whatever the tree is like by now.

        The index stays as it is: what happened since it was made, the helper tells of, and a scan finds.
        """
        head = self.timeline.tip()
        wanted = index_tag(head.hash, self.limits_digest()) if head is not None else b""
        found = load_index(self.index_path, wanted) if wanted else None
        base = found.base if found is not None else None
        if base is None:
            base = self.tree_at(head.seq) if head is not None else tree.pack([])
        same = Snapshot(base, b"", [], 0, -1, -1, (), is_fresh=False)
        return self.record(same, draft, opens=opens, keep_index=found is not None)

    def with_stored_delta(self, seen: Snapshot) -> Snapshot:
        """The same with its delta in the store and no longer in memory, nor decoded: it may be as large as the tree."""
        return seen.replace(delta=b"", changes=[], stored=self.put_object(seen.delta)) if seen.delta else seen

    def save(self, index: Buffer, entry: TimelineEntry, *, is_same: bool = False) -> None:
        """Keep the index for the next scan. Only a cache: if this fails the next scan is slower.

        It is what was recorded last, and what we did since; that, too, the helper will tell of.
        """
        mark, is_complete = self._mark, self._is_complete and entry.kind != FORGET
        wanted = index_tag(entry.hash, self.limits_digest())
        try:
            if mark is not None:
                from reprieve.files.disbelief import Check  # nothing for who works without the helper

                told.when_due(Check(os.readlink(b"/proc/self/fd/%d" % self.root_fd), self.index_path, self.limits))
            if (
                is_same
                and os.path.exists(self.index_path)
                and retag(self.index_path, index, wanted, mark, is_complete=is_complete)
            ):
                return
            out = index if isinstance(index, bytearray) else bytearray(index)
            out[40:56] = wanted
            save_index(self.index_path, out, mark, is_complete=is_complete)
        except OSError as e:
            self.reporter.warn(f"the index could not be written ({e.strerror}); the next checkpoint will be slower")

    def _with_lists(self, lost: set[bytes], last: Buffer | None) -> frozenset[bytes]:
        """What is lost, and the lists of large files that have lost a piece: a tree names only those."""
        if not lost or last is None:
            return frozenset(lost)
        from reprieve.files.reachable import lists_with

        return frozenset(lost | lists_with(self.blobs, last, lost))

    def _forgotten_by(self, loaded: Loaded) -> set[bytes]:
        """The same, without a walk through the whole timeline where the index says that there is none."""
        self._is_complete = loaded.is_complete or not any(self.timeline.newest_first(limit=1, kinds=(FORGET,)))
        return set() if self._is_complete else self.forgotten()

    def forgotten(self) -> set[bytes]:
        """Objects that a person had removed and that are not stored again since."""
        ids: set[bytes] = set()
        for entry in self.timeline.newest_first(kinds=(FORGET,)):
            if not self._is_sound(entry):
                continue  # then its objects are simply missing, and named as such
            import json

            ids.update(bytes.fromhex(id) for id in json.loads(entry.data)["objects"])
        return ids - self.blobs.has(sorted(ids)) if ids else ids

    def _load(self, head: TimelineEntry | None) -> Loaded:
        if head is None:
            return Loaded(None)
        digest = self.limits_digest()
        found = load_index(self.index_path, index_tag(head.hash, digest))
        if found is not None:
            return found
        truth = self.tree_at(head.seq)
        # an index of a slightly older entry still saves reading what has not changed since
        for older in self.timeline.newest_first(limit=16):
            found = load_index(self.index_path, index_tag(older.hash, digest))
            if found is not None and found.base is not None:
                return Loaded(_carry_over(found.base, truth), truth)
        return rebuild(truth, self._accepts())

    def _accepts(self) -> Callable[[bytes, bool], bool] | None:
        excludes, only = self.limits.excludes, self.limits.only
        inner = excludes.accepts if excludes is not None and not excludes.is_empty else None
        if not only:
            return inner
        return lambda path, is_dir: path.partition(b"/")[0] in only and (inner is None or inner(path, is_dir))

    def is_left_out(self, path: bytes) -> bool:
        """Whether checkpoints would not hold what is made at this path (relative to the root), by the user's choice."""
        accepts = self._accepts()
        return accepts is not None and not (accepts(path, False) and accepts(path, True))

    def names_at(self, entry: TimelineEntry | None) -> frozenset[bytes] | None:
        """The names in the root that were looked at for an entry; None if it does not say."""
        while entry is not None and entry.kind != CHECKPOINT:
            entry = self.timeline.at(entry.seq - 1) if entry.seq > 1 else None  # a move's are those right before it
        return names_in(entry.data) if entry is not None else None

    def limits_digest(self) -> bytes:
        """Of what is looked at: a directory that did not change is not listed again under the same limits alone."""
        excludes, only = self.limits.excludes, self.limits.only
        digest = excludes.digest if excludes is not None else bytes(16)
        return digest + b"\0".join(sorted(only))

    # -- then

    def tree_at(self, seq: int) -> Buffer:
        """The whole tree as it was after entry `seq`, without stat columns."""
        at, packed = self._whole_before(seq)
        walked, last = 0, None
        for entry in self.timeline.after(at):
            if entry.seq > seq:
                break
            if entry.is_pruned:
                raise StoreCorrupted(f"the tree of entry {entry.id} was pruned and no later full tree was kept")
            if entry.delta:
                old, new = tree.split_delta(self.object(entry.delta))
                gone = [path for path, _ in tree.entries(old) if native.find(new, path) < 0]
                packed = native.merge(packed, new, gone, {}, bytes(16))
                walked += 1
            at, last = entry.seq, entry
        if at != seq:
            raise damaged(f"entry {seq} is missing")
        if walked > _FULL_AFTER and last is not None:
            with self.store.transaction():
                self.keep_whole(last, packed)
                self.blobs.flush()
        return packed

    def keep_whole(self, entry: TimelineEntry, packed: Buffer) -> None:
        """Store the tree at an entry as a whole. It carries the entry's hash, so it stands for no other."""
        out = bytearray(packed)
        out[40:56] = entry.hash[:16]
        self.timeline.set_full(entry.seq, self.put_object(bytes(out)))

    def _whole_before(self, seq: int) -> tuple[int, Buffer]:
        """The nearest full tree at or before seq: (its entry's number, tree). A row that lies is passed over."""
        while start := self.timeline.full_at_or_before(seq):
            seq, id = start
            entry = self.timeline.at(seq)
            packed = self.object(id) if entry is not None else b""
            if entry is not None and packed[40:56] == entry.hash[:16]:
                return seq, packed
            seq -= 1
        return 0, tree.pack([])

    def changes_between(self, older: int, newer: int) -> tree.Delta:
        """(path, entry after `older`, entry after `newer`) of every path that differs."""
        found: dict[bytes, tuple[object, object]] = {}
        at = older
        try:
            for entry in self.timeline.after(older):
                if entry.seq > newer:
                    break
                if entry.is_pruned:
                    return tree.compare(self.tree_at(older), self.tree_at(newer))
                if entry.delta:
                    for path, before, after in tree.decode_delta(self.object(entry.delta)):
                        found[path] = (found[path][0] if path in found else before, after)
                at = entry.seq
            if at != newer:
                raise damaged(f"entry {newer} is missing")
        except StoreCorrupted:
            # each tree may have a sound way of its own, around the damage
            return tree.compare(self.tree_at(older), self.tree_at(newer))
        return [(path, a, b) for path, (a, b) in found.items() if a != b]  # type: ignore[misc]

    def _is_sound(self, head: TimelineEntry | None) -> bool:
        return head is None or is_sound(self.workspace_id, head)

    @property
    def attic(self) -> str:
        """Where a restore may leave what it needs no longer; `gc` removes what is there."""
        return os.path.join(self.home, "tmp")

    @property
    def home(self) -> str:
        """Where the store is."""
        return os.path.dirname(os.path.dirname(self.index_path))

    def has_room(self, size: int) -> bool:
        """Whether that many bytes more in the home leave enough for what matters."""
        left = os.statvfs(self.home)
        return left.f_bavail * left.f_frsize > size + _AMPLE

    def make_room(self) -> None:
        """Give up the store's reserve, if there is one: what follows must not fail for want of a few bytes."""
        from reprieve.store.ballast import release_ballast

        release_ballast(self.home)

    # -- objects that may be large

    def put_object(self, data: bytes) -> bytes:
        """Store a delta or tree; large ones in pieces. Returns the id to ask `object` for."""
        if len(data) <= WHOLE:
            id = native.sha256(data)
            self.blobs.put([(id, data)])
            return id
        view, pieces = memoryview(data), []
        for at in range(0, len(data), _PIECE):
            piece = view[at : at + _PIECE]
            pieces.append((len(piece), native.sha256(piece)))
            self.blobs.put([(pieces[-1][1], piece)])
        listing = encode_chunks(pieces)
        id = native.sha256(listing)
        self.blobs.put([(id, listing)])
        return id

    def object(self, id: bytes) -> bytes:
        """A delta or tree by its id."""
        data = self.blobs.get(id)
        if data[:8] != b"RPCHUNK1":
            return data
        return b"".join(piece or b"" for _, piece in read(self.blobs, id, is_chunked=True))


def _changed_git(seen: Snapshot) -> bool:
    if seen.changes is None:
        return b".git" in seen.delta
    return any(b".git" in path and _git_dir(path) for path, _, _ in seen.changes)


def _git_dir(path: bytes) -> bytes:
    """The repository directory that path is in, b"" if it is in none."""
    parts = path.split(b"/")
    return b"/".join(parts[: parts.index(b".git") + 1]) if b".git" in parts[:-1] else b""


def _carry_over(index: Buffer, truth: Buffer) -> Buffer:
    """The truth's rows, with the index's stat columns where both agree on the entry."""
    differing = {path for path, _, _ in tree.compare(truth, index)}
    only_new = [path for path in differing if native.find(truth, path) < 0]
    again = [(path, entry, tree.NO_STAT, 0) for path in differing if (entry := tree.lookup(truth, path)) is not None]
    return native.merge(index, tree.pack(again), only_new, {}, bytes(16))
