"""Programs that pack and unpack: tar, unzip, zip. Where they write is told by their options. Pure.

Each has a way of its own to write options (tar's first word without a dash, unzip's `-d` behind the archive), so
each is read as it reads itself. What can't be read for certain is opaque.
"""

from __future__ import annotations

import posixpath

from reprieve.policy.filetools import as_word, inside, operands, unknown
from reprieve.policy.options import Parsed, parse, spec
from reprieve.policy.reads import given
from reprieve.policy.scene import HARMLESS, Judgement, Scene, gone, heaviest, opaque, removes, writes
from reprieve.policy.words import Word, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# GNU tar and bsdtar; a letter that means different things to them is left out
_TAR = spec(
    "A c r t u x v w k p P z j J Z a m O S h l o B i n U list extract get create append update catenate concatenate"
    " delete verbose verify keep-old-files skip-old-files keep-newer-files overwrite overwrite-dir no-overwrite-dir"
    " unlink-first recursive-unlink same-permissions preserve-permissions no-same-permissions same-owner no-same-owner"
    " numeric-owner same-order preserve-order gzip gunzip ungzip bzip2 xz lzma lzip lzop zstd compress uncompress"
    " auto-compress no-auto-compress touch to-stdout sparse dereference hard-dereference one-file-system totals"
    " ignore-zeros ignore-failed-read no-recursion recursion null wildcards no-wildcards anchored no-anchored"
    " ignore-case no-ignore-case wildcards-match-slash no-wildcards-match-slash exclude-vcs exclude-vcs-ignores"
    " exclude-caches exclude-caches-all exclude-caches-under exclude-backups full-time utc acls no-acls xattrs"
    " no-xattrs selinux no-selinux posix old-archive portability check-device no-check-device"
    " delay-directory-restore no-delay-directory-restore show-transformed-names show-stored-names force-local seek"
    " no-seek verbatim-files-from checkpoint one-top-level backup absolute-names remove-files occurrence",
    "f C T X b g K N V file directory files-from exclude exclude-from exclude-ignore exclude-ignore-recursive"
    " exclude-tag exclude-tag-all exclude-tag-under strip-components transform xform mode mtime owner group format"
    " label newer newer-mtime after-date sort pax-option blocking-factor record-size listed-incremental index-file"
    " suffix level quoting-style starting-file warning owner-map group-map add-file hole-detection",
)
_TAR_RUNS = ("--to-command", "-I", "--use-compress-program", "--checkpoint-action", "--rsh-command", "-F",
             "--info-script", "--new-volume-script", "--rmt-command")  # fmt: skip
_TAR_MODES = {
    "--list": "t", "--extract": "x", "--get": "x", "--create": "c", "--append": "r", "--update": "u",
    "--catenate": "A", "--concatenate": "A", "--delete": "r",
}  # fmt: skip


def _tar(words: Sequence[Word], scene: Scene) -> Judgement:
    if len(words) < 2 or words[1].text is None:
        return opaque("what tar does is not known")
    if any(_starts(word.text or word.prefix, _TAR_RUNS) for word in words[1:]):
        return opaque("tar runs another program")
    options = _tar_options(words)
    if options is None:
        return unknown(words)
    if options.has("--remove-files"):
        return opaque("tar removes what it packed")
    names = [name for name, _ in options.options]
    modes = {_TAR_MODES.get(name, name[1:]) for name in names} & set("Acrtux")
    archives = _values(options, "-f", "--file")
    found = writes(_values(options, "-g", "--listed-incremental", "--index-file"), scene)
    if any(":" in (word.text or "").split("/")[0] for word in archives) and not options.has("--force-local"):
        return gone("tar reads or writes on another machine")
    if "x" in modes:
        if options.has("-T", "--files-from"):
            return opaque("tar takes orders from a file")
        if options.has("-O", "--to-stdout"):
            return found
        if options.has("-P", "--absolute-names"):
            return gone("tar writes wherever its archive says")
        top = _values(options, "--one-top-level")
        return heaviest(
            (found, *[writes([inside(at)], scene) for at in _steps(options, "-C", "--directory", then=top)])
        )
    if modes & set("Acru"):
        return heaviest((found, writes([word for word in archives if word.text != "-"], scene)))
    return found if modes == {"t"} else opaque("what tar does is not known")


def _tar_options(words: Sequence[Word]) -> Parsed | None:
    """All options. The first word may be a bundle without a dash, whose values follow in the order of its letters."""
    first = words[1].text or ""
    bundled: list[tuple[str, Word | str | None]] = []
    at = 1
    if not first.startswith("-"):
        at = 2
        for letter in first:
            if f"-{letter}" in _TAR.flags:
                bundled.append((f"-{letter}", None))
            elif f"-{letter}" in _TAR.values and at < len(words):
                bundled.append((f"-{letter}", words[at]))
                at += 1
            else:
                return None
    read = operands([words[0], *words[at:]], _TAR)
    if read is None or any(_may_be_option(word) for word in read[0]):
        return None
    return Parsed((*bundled, *read[1].options), len(words))


def _may_be_option(word: Word) -> bool:
    return word.text is None and word.prefix[:1] in ("", "-") and not word.is_quoted


def _values(options: Parsed, *names: str) -> list[Word]:
    return [as_word(value) for name, value in options.options if name in names and value is not None]


def _steps(options: Parsed, *names: str, then: Iterable[Word] = ()) -> list[Word]:
    """The folders that a program goes to, each from the one before."""
    found = [plain(".")]
    for word in (*_values(options, *names), *then):
        before = found[-1].text
        found.append(Word(None) if word.text is None or before is None else plain(posixpath.join(before, word.text)))
    return found[1:] or found


def _starts(text: str, options: Sequence[str]) -> bool:
    """Whether a word begins like one of the options, or may be one of them shortened."""
    name = text.partition("=")[0]
    return any(
        option.startswith(name) if text.startswith("--") and len(name) > 4 else len(option) == 2 and text[:2] == option
        for option in options
        if not (text.startswith("--") and name in _TAR.flags)
    )


# -- unzip

_UNZIP_LOOKS = "ltpczvZ"
_UNZIP_FLAGS = "fuonjUCXqabDLMVWKsB"


def _unzip(words: Sequence[Word], scene: Scene) -> Judgement:
    """Options stand before the archive, but `-d` may follow it, and its folder may be attached or end a cluster."""
    into: list[Word] = []
    has_archive = False
    at = 1
    while at < len(words):
        word, text = words[at], words[at].text
        at += 1
        if text is None and _may_be_option(word):
            return opaque("unzip gets options that only the running shell knows")
        if text is None or not text.startswith("-") or text == "-":
            has_archive = True
            continue
        for number, letter in enumerate(text[1:], 2):
            if letter in "dPIO":
                value = plain(text[number:]) if text[number:] else words[at] if at < len(words) else Word(None)
                at += 0 if text[number:] else 1
                into += [value] if letter == "d" else []
                break
            if letter in _UNZIP_LOOKS and not has_archive:
                return HARMLESS
            if letter not in _UNZIP_FLAGS + _UNZIP_LOOKS + ("x" if has_archive else ""):
                return unknown(words)
    return writes([inside(word) for word in into or [plain(".")]], scene)


# -- zip

_ZIP = spec(
    "r j q v m u f d g o X y D e l k S c z 0 1 2 3 4 5 6 7 8 9 -FS recurse-paths junk-paths quiet verbose move update"
    " freshen delete grow filesync symlinks no-dir-entries no-extra latest-time encrypt",
    "n P s t -tt suffixes password split-size from-date before-date",
)
_ZIP_RUNS = ("-TT", "-T", "--test", "--unzip-command")
_ZIP_ELSEWHERE = ("-O", "--out", "--output-file", "-b", "--temp-path", "-lf", "--logfile-path")


def _zip(words: Sequence[Word], scene: Scene) -> Judgement:
    texts = [word.text or word.prefix for word in words[1:]]
    if any(given(text, _ZIP_RUNS) for text in texts):
        return opaque("zip may run another program")
    if any(given(text, _ZIP_ELSEWHERE) for text in texts if text not in _ZIP.flags):
        return opaque("where zip writes is not known")
    parsed = parse(words, _ZIP)  # up to the archive, the first operand
    if parsed is None:
        return unknown(words)
    sources = [word for word in words[parsed.rest + 1 :] if word.text is None or not word.text.startswith("-")]
    moved = sources if any(given(text, ("-m", "--move")) for text in texts) else []
    return heaviest((writes(words[parsed.rest : parsed.rest + 1], scene), removes(moved, scene)))


_ARCHIVERS = {"tar": _tar, "bsdtar": _tar, "unzip": _unzip, "zip": _zip}


def judge_archiver(name: str, words: Sequence[Word], scene: Scene) -> Judgement | None:
    """What one of these programs writes; None: it is not one of them."""
    archiver = _ARCHIVERS.get(name)
    return None if archiver is None else archiver(words, scene)
