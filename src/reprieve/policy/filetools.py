"""Programs that change files: which paths they replace, remove or touch. Pure.

Inside the workspace that is restorable, elsewhere it is not. An option that could move the effect somewhere else and is
not known makes the call opaque.
"""

from __future__ import annotations

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
    from collections.abc import Callable, Sequence

    Judge = Callable[[Sequence[Word], Scene], Judgement]


def _operands(words: Sequence[Word], known: Spec) -> tuple[list[Word], Parsed] | None:
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


def _unknown(words: Sequence[Word]) -> Judgement:
    return opaque(f"an option of {words[0].text} is not known")


def _file(known: Spec, judge: Callable[[list[Word], Parsed, Scene], Judgement]) -> Judge:
    def run(words: Sequence[Word], scene: Scene) -> Judgement:
        read = _operands(words, known)
        return _unknown(words) if read is None else judge(*read, scene)

    return run


def _as_word(value: Word | str | None) -> Word:
    return plain(value) if isinstance(value, str) else value or Word(None)


def _copy(operands: list[Word], options: Parsed, scene: Scene) -> Judgement:
    into = options.value("-t", "--target-directory")
    target = [_as_word(into)] if into is not None else operands[-1:]
    return writes([_inside(word) if into is not None else word for word in target], scene)


def _inside(word: Word) -> Word:
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
    if len(operands) == 1 and not options.has("-t", "--target-directory"):
        return writes([plain(".")], scene) if operands[0].text is None else writes(
            [plain(operands[0].text.rstrip("/").rpartition("/")[2])], scene
        )  # fmt: skip
    return _copy(operands, options, scene)


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
    "link": _file(spec(), _copy),
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


_TAR_RUNS = ("--to-command", "-I", "--use-compress-program", "--checkpoint-action", "--rsh-command", "-F",
"--info-script",
             "--new-volume-script", "--rmt-command")  # fmt: skip


def _tar(words: Sequence[Word], scene: Scene) -> Judgement:
    texts = [word.text for word in words[1:]]
    if not texts or any(text is None for text in texts[:1]):
        return opaque("what tar does is not known")
    known = [text or "" for text in texts]
    if any(_starts(text, _TAR_RUNS) for text in known):
        return opaque("tar runs another program")
    first = known[0] if known[0].startswith("-") else "-" + known[0]
    modes = {letter for letter in first.lstrip("-") if letter in "ctxruA"} if not first.startswith("--") else set()
    for long, letter in (("--list", "t"), ("--extract", "x"), ("--get", "x"), ("--create", "c"), ("--delete", "r")):
        if long in known:
            modes.add(letter)
    for text in known[1:]:
        if text.startswith("-") and not text.startswith("--"):
            modes |= {letter for letter in text[1:] if letter in "ctxruA"} if len(text) < 6 else set()
    if "--remove-files" in known:
        return opaque("tar removes what it packed")
    if "x" in modes:
        into = next((plain(known[n + 1]) for n, text in enumerate(known[:-1]) if text in ("-C", "--directory")), None)
        if any(text in ("-P", "--absolute-names") or (text.startswith("-") and "P" in text[:6]) for text in known):
            return gone("tar writes wherever its archive says")
        joined = next((plain(text.partition("=")[2]) for text in known if text.startswith("--directory=")), None)
        if "O" in first or "--to-stdout" in known:
            return HARMLESS
        return writes([_inside(into or joined or plain("."))], scene)
    if modes & set("cruA"):
        at = next(
            (n for n, text in enumerate(known) if text == "--file" or (text[:2] != "--" and _has_f(text, n))), None
        )
        target = next((plain(text.partition("=")[2]) for text in known if text.startswith("--file=")), None)
        if target is None and at is not None and at + 1 < len(words) - 1:
            target = words[at + 2]
        return writes([target], scene) if target is not None and target.text != "-" else HARMLESS
    return HARMLESS if modes == {"t"} else opaque("what tar does is not known")


def _has_f(text: str, number: int) -> bool:
    return text.endswith("f") and (text.startswith("-") or number == 0)


def _starts(text: str, options: Sequence[str]) -> bool:
    return any(text == option or text.startswith(f"{option}=") or
               (len(option) == 2 and text.startswith(option)) for option in options)  # fmt: skip


def _unzip(words: Sequence[Word], scene: Scene) -> Judgement:
    texts = [word.text or "" for word in words[1:]]
    if any(text.startswith("-") and set(text[1:]) & set("ltpZvc") for text in texts[:2]):
        return HARMLESS
    where = next((words[n + 2] for n, text in enumerate(texts[:-1]) if text == "-d"), plain("."))
    return writes([_inside(where)], scene)


def _zip(words: Sequence[Word], scene: Scene) -> Judgement:
    texts = [word.text or "" for word in words[1:]]
    if any(given(text, ("-TT", "-T", "--test", "--unzip-command")) for text in texts):
        return opaque("zip may run another program")
    operands = [word for word in words[1:] if word.text is None or not word.text.startswith("-")]
    moved = operands[1:] if any(given(text, ("-m", "--move")) for text in texts) else []
    return heaviest((writes(operands[:1], scene), removes(moved, scene)))


def _rsync(words: Sequence[Word], scene: Scene) -> Judgement:
    texts = [word.text or "" for word in words[1:]]
    if any(given(text, ("-e", "--rsh", "--rsync-path", "--daemon", "--config", "--files-from")) for text in texts):
        return opaque("rsync may run another program")
    if any(word.text is None for word in words[1:]):
        return gone("rsync writes where only the running shell knows")
    operands = [word for word in words[1:] if not (word.text or "").startswith("-")]
    if any(given(text, ("-n", "--dry-run")) for text in texts):
        return HARMLESS
    if any(":" in (word.text or "").split("/")[0] for word in operands[-1:]):
        return gone("rsync writes on another machine")
    moved = operands[:-1] if "--remove-source-files" in texts else []
    return heaviest((writes([_inside(word) for word in operands[-1:]], scene), removes(moved, scene)))


def _scp(words: Sequence[Word], scene: Scene) -> Judgement:
    if any(
        given(word.text or "-o", ("-o", "-F", "-S", "-D")) for word in words[1:] if (word.text or "-").startswith("-")
    ):
        return opaque("scp may run another program")
    target = words[-1]
    if target.text is None or ":" in target.text.split("/")[0]:
        return gone("scp writes on another machine")
    return writes([target], scene)


def _patch(words: Sequence[Word], scene: Scene) -> Judgement:
    if any(given(word.text or "", ("--dry-run",)) for word in words[1:]):
        return HARMLESS
    where = next((words[n + 1] for n, word in enumerate(words[:-1]) if word.text in ("-d", "--directory")), plain("."))
    if any(given(word.text or "", ("-o", "-r", "--output", "--reject-file")) for word in words[1:]):
        return opaque("where patch writes is not known")
    return writes([_inside(where)], scene)


_MORE: dict[str, Judge] = {
    "dd": _dd, "tar": _tar, "bsdtar": _tar, "unzip": _unzip, "zip": _zip, "rsync": _rsync, "scp": _scp, "patch": _patch,
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
