"""Programs that change files: which paths they replace, remove or touch. Pure.

Inside the workspace that is restorable, elsewhere it is not. An option that could move the effect somewhere else and is
not known makes the call opaque. Packing and unpacking are `archives`'.
"""

from __future__ import annotations

import posixpath

from reprieve.policy.options import Parsed, Spec, parse, spec
from reprieve.policy.reads import given
from reprieve.policy.scene import (
    HARMLESS,
    Judgement,
    Scene,
    changes,
    gone,
    heaviest,
    opaque,
    removes,
    reversible,
    writes,
)
from reprieve.policy.words import Word, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Judge = Callable[[Sequence[Word], Scene], Judgement]


def operands(words: Sequence[Word], known: Spec) -> tuple[list[Word], Parsed] | None:
    """Operands and options in any order, as GNU programs read them; None: an option is not known."""
    found: list[Word] = []
    options: list[tuple[str, Word | str | None]] = []
    at = 1
    while at < len(words):
        parsed = parse(words, known, start=at)
        if parsed is None:
            if words[at].text is None:  # unknown, maybe an option: for these programs it is at worst a path
                found.append(words[at])
                at += 1
                continue
            return None
        options += parsed.options
        if parsed.rest > at and words[parsed.rest - 1].text == "--":
            found += words[parsed.rest :]
            break
        if parsed.rest >= len(words):
            break
        found.append(words[parsed.rest])
        at = parsed.rest + 1
    return found, Parsed(tuple(options), len(words))


def unknown(words: Sequence[Word]) -> Judgement:
    """Opaque, for an option that is not listed."""
    return opaque(f"an option of {words[0].text} is not known")


def _file(known: Spec, judge: Callable[[list[Word], Parsed, Scene], Judgement]) -> Judge:
    def run(words: Sequence[Word], scene: Scene) -> Judgement:
        read = operands(words, known)
        return unknown(words) if read is None else judge(*read, scene)

    return run


def as_word(value: Word | str | None) -> Word:
    """An option's value, which may have been attached to it."""
    return plain(value) if isinstance(value, str) else value or Word(None)


def _copy(operands: list[Word], options: Parsed, scene: Scene) -> Judgement:
    into = options.value("-t", "--target-directory")
    target = [as_word(into)] if into is not None else operands[-1:]
    return writes([inside(word) if into is not None else word for word in target], scene)


def inside(word: Word) -> Word:
    """Some name in the folder."""
    return word if word.text is None else Word(word.text.rstrip("/") + "/\x01", is_glob=word.is_glob)


def _move(operands: list[Word], options: Parsed, scene: Scene) -> Judgement:
    into = options.value("-t", "--target-directory")
    sources = operands if into is not None else operands[:-1]
    return heaviest((removes(sources, scene), _copy(operands, options, scene)))


def _remove(operands: list[Word], options: Parsed, scene: Scene) -> Judgement:
    return removes(operands, scene)


def _write(operands: list[Word], options: Parsed, scene: Scene) -> Judgement:
    return writes(operands, scene)


def _meta(operands: list[Word], options: Parsed, scene: Scene) -> Judgement:
    is_referred = options.has("--reference")
    return changes(operands if is_referred else operands[1:], scene)


def _make(operands: list[Word], options: Parsed, scene: Scene) -> Judgement:
    """New and empty: taking it away again loses nothing."""
    return reversible("makes an empty folder") if not scene.places.is_remote else gone("makes a folder elsewhere")


def _touch(operands: list[Word], options: Parsed, scene: Scene) -> Judgement:
    return changes(operands, scene)


def _link(operands: list[Word], options: Parsed, scene: Scene) -> Judgement:
    scene = scene.replace(places=scene.places.replace(made=()))  # its own names are not written through
    if len(operands) == 1 and not options.has("-t", "--target-directory"):
        return writes([plain(".")], scene) if operands[0].text is None else writes(
            [plain(operands[0].text.rstrip("/").rpartition("/")[2])], scene
        )  # fmt: skip
    return _copy(operands, options, scene)


def links_made(commands: Iterable[Sequence[str | None]]) -> tuple[str, ...]:
    """The names of the links that these argument lists make. Where one is not known, `ln` itself is judged by that."""
    found: list[str] = []
    for argv in commands:
        if not argv or posixpath.basename(argv[0] or "") not in ("ln", "link"):
            continue
        read = operands([Word(text, text or "") for text in argv], _COPY)
        # in a folder the link has the name of what it leads to
        found += [posixpath.basename((word.text or "").rstrip("/")) for word in (read[0] if read else ())]
    return tuple(name for name in dict.fromkeys(found) if name not in ("", ".", ".."))


def _compress(operands: list[Word], options: Parsed, scene: Scene) -> Judgement:
    if options.has("-c", "--stdout", "-t", "--test", "-l", "--list") or not operands:
        return HARMLESS
    return heaviest((writes(operands, scene), removes(operands, scene)))


def _split(operands: list[Word], options: Parsed, scene: Scene) -> Judgement:
    if options.has("--filter"):
        return opaque("split --filter runs a command")
    return writes(operands[1:2] or [plain("xaa")], scene)


_COMMON = "v verbose f force i n interactive help version"
_COPY = spec(
    f"{_COMMON} a b d H l L p P r R s T u x archive backup dereference no-dereference recursive update no-clobber link"
    " symbolic-link one-file-system parents attributes-only remove-destination preserve reflink sparse"
    " strip-trailing-slashes"
    " no-target-directory copy-contents debug Z",
    "t S target-directory suffix",
)  # fmt: skip
_META = spec("R f v c h H L P recursive changes silent quiet verbose dereference no-dereference preserve-root"
             " no-preserve-root", "reference from")  # fmt: skip
_ZIPPED = spec(
    "c d f k l n N q r t v z 1 2 3 4 5 6 7 8 9 stdout decompress uncompress force keep list recursive test verbose"
    " quiet best"
    " fast rm no-name",
    "S T o suffix threads",
)

_TOOLS: dict[str, Judge] = {
    "rm": _file(spec(f"{_COMMON} r R d I recursive dir one-file-system preserve-root no-preserve-root"), _remove),
    "rmdir": _file(spec(f"{_COMMON} p parents ignore-fail-on-non-empty"), _remove),
    "unlink": _file(spec("help version"), _remove),
    "shred": _file(spec(f"{_COMMON} u x z a force exact zero remove", "n s iterations size random-source"), _write),
    "wipe": _file(spec("r f q s c i"), _write),
    "srm": _file(spec("r f v i s m"), _remove),
    "trash": _file(spec(_COMMON), _remove),
    "trash-put": _file(spec(_COMMON), _remove),
    "mv": _file(_COPY, _move),
    "cp": _file(_COPY, _copy),
    "ln": _file(_COPY, _link),
    "link": _file(spec(), _link),
    "install": _file(spec("b c C d D p s v T directory compare preserve-timestamps verbose",
    "g m o t S owner group mode"), _copy),
    "mkdir": _file(spec("p v parents verbose", "m mode"), _make),
    "mktemp": _file(spec("d u q t directory dry-run quiet", "p tmpdir suffix"), _make),
    "touch": _file(spec("a c m h f no-create no-dereference", "d r t date reference time"), _touch),
    "mkfifo": _file(spec("", "m mode"), _write),
    "mknod": _file(spec("", "m mode"), _write),
    "truncate": _file(spec("c o no-create io-blocks", "s r size reference"), _write),
    "fallocate": _file(spec("d n p x z c v", "l o length offset"), _write),
    "tee": _file(spec("a i p append ignore-interrupts output-error"), _write),
    "sponge": _file(spec("a"), _write),
    "chmod": _file(_META, _meta),
    "chown": _file(_META, _meta),
    "chgrp": _file(_META, _meta),
    "chattr": _file(spec("R V f"), _meta),
    "setfattr": _file(spec("h", "n v x name value remove restore"), _touch),
    "gzip": _file(_ZIPPED, _compress),
    "gunzip": _file(_ZIPPED, _compress),
    "bzip2": _file(_ZIPPED, _compress),
    "bunzip2": _file(_ZIPPED, _compress),
    "xz": _file(_ZIPPED, _compress),
    "unxz": _file(_ZIPPED, _compress),
    "zstd": _file(_ZIPPED, _compress),
    "split": _file(spec("d x e u verbose numeric-suffixes hex-suffixes",
    "a b C l n t bytes lines number filter suffix-length"),
                   _split),
    "dos2unix": _file(spec("k q f"), _write),
    "unix2dos": _file(spec("k q f"), _write),
}  # fmt: skip


def _dd(words: Sequence[Word], scene: Scene) -> Judgement:
    outputs = []
    for word in words[1:]:
        if word.text is None and not word.prefix.startswith(("if=", "bs=", "count=", "skip=", "seek=")):
            return gone("dd writes where only the running shell knows")
        if (word.text or "").startswith("of="):
            outputs.append(plain((word.text or "")[3:]))
    return writes(outputs, scene)


_RSYNC = spec(
    "v q c a r R b u d l L k H p E A X o g D t N O J U S W x I m n z C F 8 h P i 4 6 s y 0 verbose quiet no-motd"
    " checksum archive recursive relative no-implied-dirs backup update inplace append append-verify dirs mkpath links"
    " copy-links copy-unsafe-links safe-links munge-links copy-dirlinks hard-links perms executability acls xattrs"
    " owner group devices specials times atimes crtimes omit-dir-times omit-link-times super fake-super sparse"
    " preallocate"
    " dry-run whole-file one-file-system existing ignore-existing remove-source-files del delete delete-before"
    " delete-during delete-delay delete-after delete-excluded ignore-missing-args delete-missing-args"
    " ignore-errors force partial"
    " delay-updates prune-empty-dirs numeric-ids ignore-times size-only fuzzy compress cvs-exclude from0 protect-args"
    " secluded-args old-args stats human-readable progress itemize-changes list-only fsync ipv4 ipv6 no-perms no-owner"
    " no-group no-times no-links no-recursive no-relative no-compress no-whole-file no-p no-o no-g no-t no-D no-r no-l"
    " no-devices no-specials no-inc-recursive no-dirs",
    "f B T filter exclude exclude-from include include-from info debug max-delete max-size min-size partial-dir usermap"
    " groupmap chown chmod timeout contimeout modify-window compare-dest copy-dest link-dest compress-choice"
    " compress-level skip-compress address port sockopts outbuf out-format log-format log-file log-file-format bwlimit"
    " stop-after stop-at protocol iconv checksum-seed checksum-choice block-size suffix password-file backup-dir"
    " temp-dir",
)
_RSYNC_FOLDERS = ("-T", "--temp-dir", "--backup-dir", "--partial-dir")


def _rsync(words: Sequence[Word], scene: Scene) -> Judgement:
    texts = [word.text or "" for word in words[1:]]
    if any(given(text, ("-e", "--rsh", "--rsync-path", "--daemon", "--config", "--files-from")) for text in texts):
        return opaque("rsync may run another program")
    if any(word.text is None for word in words[1:]):
        return gone("rsync writes where only the running shell knows")
    read = operands(words, _RSYNC)
    if read is None:
        return unknown(words)
    paths, options = read
    logged = writes([as_word(value) for name, value in options.options if name == "--log-file"], scene)
    if options.has("-n", "--dry-run"):
        return logged
    moved = paths[:-1] if options.has("--remove-source-files") else []
    if any(_is_elsewhere(word) for word in (*paths[-1:], *moved)):
        return gone("rsync writes on another machine")
    # folders of its own are looked for from the target
    own = [as_word(value).text or "" for name, value in options.options if name in _RSYNC_FOLDERS]
    targets = [*paths[-1:], *[plain(posixpath.join(word.text or "", one)) for word in paths[-1:] for one in own]]
    return heaviest((logged, writes([inside(word) for word in targets], scene), removes(moved, scene)))


def _is_elsewhere(word: Word) -> bool:
    """`host:path`, `user@host:path`, `rsync://host/path`."""
    return ":" in (word.text or "").split("/")[0]


_SCP = spec("3 4 6 A B C O p q R r s T v", "c i J l P X")


def _scp(words: Sequence[Word], scene: Scene) -> Judgement:
    parsed = parse(words, _SCP)
    # programs of this name disagree on options behind an operand
    if parsed is None or any((word.text or "-").startswith("-") for word in words[parsed.rest :]):
        return opaque("scp may run another program")
    target = words[-1]
    if _is_elsewhere(target):
        return gone("scp writes on another machine")
    return writes([target], scene)


_PATCH = spec(
    "b c C E f l n N R s t T u v Z backup context dry-run force batch ignore-whitespace normal forward reverse quiet"
    " silent unified remove-empty-files verbose binary set-time set-utc posix merge no-backup-if-mismatch"
    " backup-if-mismatch",
    "p F i d D V z strip fuzz input directory ifdef version-control suffix reject-format read-only quoting-style",
)


def _patch(paths: list[Word], options: Parsed, scene: Scene) -> Judgement:
    if options.has("--dry-run"):
        return HARMLESS
    where = plain(".")
    for name, value in options.options:
        if name in ("-d", "--directory"):
            where = _joined(where, as_word(value))
    return writes([inside(where), *[_joined(where, word) for word in paths[:1]]], scene)


def _joined(folder: Word, word: Word) -> Word:
    if folder.text is None or word.text is None:
        return Word(None)
    return Word(posixpath.join(folder.text, word.text), is_glob=word.is_glob)


_MORE: dict[str, Judge] = {
    "dd": _dd, "rsync": _rsync, "scp": _scp, "patch": _file(_PATCH, _patch),
}  # fmt: skip

# Whole disks, machines, other people's processes: nothing takes these back.
_GONE = [
    "mkfs", "mkfs.ext2", "mkfs.ext3", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mkfs.vfat", "mkswap", "wipefs", "fdisk",
    "sfdisk", "parted", "gparted", "cfdisk", "sgdisk", "blkdiscard", "hdparm", "badblocks", "swapoff", "fsck",
    "e2fsck", "lvremove", "vgremove", "pvremove", "mdadm", "cryptsetup", "dmsetup", "zpool", "zfs", "umount",
    "losetup", "diskutil", "shutdown", "reboot", "halt", "poweroff", "init", "telinit", "kill", "killall", "pkill",
    "skill", "xkill", "iptables", "ip6tables", "nft", "ufw", "firewall-cmd", "userdel", "groupdel", "useradd",
    "usermod", "groupadd", "deluser", "adduser", "delgroup", "passwd", "chpasswd", "visudo", "insmod", "rmmod",
    "modprobe", "kexec", "sendmail", "mail", "mailx", "mutt", "msmtp", "swaks", "wall", "write", "logger", "debugfs",
    "tune2fs", "resize2fs", "e2label", "lvcreate", "lvextend", "vgcreate", "nmap", "nc", "ncat", "netcat", "socat",
    "telnet", "ftp", "sftp", "lftp", "tftp", "smbclient", "mount.nfs", "exportfs", "setenforce", "semanage",
    "restorecon", "chcon", "efibootmgr", "grub-install", "update-grub", "flashrom", "fwupdmgr", "nvme", "hostnamectl",
    "timedatectl", "localectl",
]  # fmt: skip


def judge_tool(name: str, words: Sequence[Word], scene: Scene) -> Judgement | None:
    """What one of these programs does to files; None: it is not one of them."""
    tool = _TOOLS.get(name) or _MORE.get(name)
    if tool is not None:
        return tool(words, scene)
    if name in _GONE or name.startswith("mkfs."):
        if name in ("kill",) and len(words) > 1 and words[1].text in ("-0", "-l", "-L"):
            return HARMLESS
        return gone(f"{name} can't be taken back")
    return None
