"""Programs that only read, each with the options that make it do something else. Pure data and one look-up.

A program that is missing here, in `filetools`, `clients`, `languages` and the catalog is opaque, so the list is what
people meet most. An entry without options reads whatever it is given.
"""

from __future__ import annotations

from reprieve.policy.scene import HARMLESS, Judgement, Scene, opaque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.policy.words import Word

# -- no option of theirs writes, sends or starts anything
_ALWAYS = [
    "ls", "dir", "vdir", "cat", "head", "tail", "wc", "grep", "egrep", "fgrep", "zgrep", "zegrep", "zfgrep", "bzgrep",
    "xzgrep", "echo", "pwd", "whoami", "id", "uname", "uptime", "df", "du", "free", "ps", "pgrep", "stat", "readlink",
    "realpath", "basename", "dirname", "cut", "tr", "nl", "tac", "rev", "paste", "join", "comm", "cmp", "md5sum",
    "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum", "cksum", "sum", "od", "strings", "column",
    "fold", "fmt", "expand", "unexpand", "seq", "sleep", "true", "false", "test", "[", ":", "expr", "factor", "tty",
    "groups", "users", "who", "w", "last", "lastlog", "printenv", "which", "whereis", "type", "locale", "getconf",
    "arch", "nproc", "lscpu", "lsblk", "lsmod", "lspci", "lsusb", "jq", "base32", "basenc", "numfmt", "zcat", "gzcat",
    "xzcat", "bzcat", "zstdcat", "lz4cat", "getent", "ping", "ping6", "dig", "nslookup", "host", "traceroute",
    "tracepath", "mtr", "cal", "ncal", "look", "tsort", "pr", "uptime", "vmstat", "iostat", "mpstat", "pidof",
    "pstree", "tload", "findmnt", "mountpoint", "wait", "jobs", "umask", "times", "shift", "return", "exit",
    "break", "continue", "let", "ulimit", "caller", "logname", "hostid", "pathchk", "getfacl", "getfattr", "lsattr",
    "nm", "objdump", "readelf", "size", "ldd", "otool", "md5", "shasum", "sw_vers", "mdls", "apropos", "whatis",
    "tldr", "tokei", "scc", "exa", "eza", "delta", "diffstat", "colordiff", "wdiff", "zcmp", "zdiff",
    "zless", "zmore", "lsof", "netstat", "runlevel", "locate", "mlocate", "plocate", "uuidgen",
    "mcookie", "yes", "inxi", "neofetch", "fastfetch", "acpi", "sensors", "xmllint-version",
    "iconv-list", "dpkg-query", "apt-cache", "apt-show-versions", "rpmquery", "lsb_release", "hostnamectl-status",
    "localectl-status", "loginctl-list", "xdpyinfo", "ping4", "whois", "geoiplookup", "nmblookup", "getcap",
    "lslocks", "lsns", "lsipc", "lsmem", "prlimit-show", "tput", "clear", "reset", "stty-show", "glow",
    "mdcat", "ipcalc", "units", "cpuid", "readtags", "zipinfo", "lzless", "xzless", "lesskey-show", "fc-list",
]  # fmt: skip

# -- these read, unless one of the options is given
_UNLESS: dict[str, tuple[str, ...]] = {
    "sort": ("-o", "--output", "--compress-program", "-T", "--temporary-directory"),
    "uniq": (),
    "date": ("-s", "--set"),
    "diff": ("--output",),
    "diff3": ("--diff-program",),
    "sdiff": ("-o", "--output", "--diff-program"),
    "fuser": ("-k", "--kill"),
    "ss": ("-K", "--kill", "-D", "--diag"),
    "arp": ("-d", "-s", "-S", "-f", "--delete", "--set", "--file"),
    "dmidecode": ("--dump-bin",),
    "lshw": ("-dump",),
    "sar": ("-o",),
    "pygmentize": ("-o", "-x"),
    "dc": ("-f", "--file"),
    "file": ("-C", "--compile"),
    "tree": ("-o",),
    "rg": ("--pre", "--hostname-bin"),
    "ag": ("--pager",),
    "ack": ("--pager",),
    "fd": ("-x", "-X", "--exec", "--exec-batch"),
    "fdfind": ("-x", "-X", "--exec", "--exec-batch"),
    "bat": ("--pager",),
    "batcat": ("--pager",),
    "less": ("-o", "-O", "--log-file", "--LOG-FILE", "+"),
    "more": (),
    "man": ("-P", "-p", "-H", "-C", "--pager", "--html", "--preprocessor", "--config-file"),
    "base64": (),
    "hexdump": (),
    "hd": (),
    "xxd": ("-r",),
    "bc": (),
    "iconv": ("-o", "--output"),
    "envsubst": (),
    "yq": ("-i", "--inplace", "--in-place", "-s", "--split-exp"),
    "shellcheck": (),
    "cloc": ("--report-file", "--out"),
    "hadolint": (),
    "yamllint": (),
    "markdownlint": ("--fix",),
    "ruff": ("--fix", "--fix-only", "--unsafe-fixes", "--add-noqa", "-o", "--output-file", "-w"),
    "dmesg": ("-C", "-c", "--clear", "--read-clear", "-D", "-E", "-n", "--console-level"),
    "journalctl": (
        "--vacuum-time",
        "--vacuum-size",
        "--vacuum-files",
        "--rotate",
        "--flush",
        "--sync",
        "--relinquish-var",
        "--cursor-file",
        "--setup-keys",
    ),
    "history": ("-c", "-d", "-w", "-a", "-r", "-n", "-s"),
    "hash": ("-d", "-r", "-p"),
    "column": (),
    "gunzip": (),
    "xmllint": ("--output", "-o", "--shell"),
    "sqlformat": ("-o", "--outfile"),
    "openssl": ("-out", "-writerand", "-engine", "-provider", "-config"),
    "gpg": (),
    "protoc-version": (),
    "top": (),
    "htop": (),
    "tokei": (),
    "hyperfine": (),
}
# -- only with these words, else not known
_ONLY: dict[str, tuple[str, ...]] = {
    "ruff": ("check", "--version", "version", "rule", "linter", "config"),
    "openssl": ("version", "x509", "dgst", "verify", "ciphers", "asn1parse"),
    "gpg": ("--list-keys", "--list-secret-keys", "--version", "--verify", "-k", "-K", "--fingerprint"),
    "hostname": ("-f", "-i", "-I", "-s", "-d", "-A", "--fqdn", "--ip-address", "--short"),
    "ip": ("addr", "address", "a", "link", "route", "r", "neigh", "-br", "-4", "-6", "-o", "-j", "rule"),
    "ifconfig": ("-a",),
    "mount": ("-l", "--version"),
    "swapon": ("--show", "-s"),
    "sysctl": ("-a", "--all", "-n"),
    "hostnamectl": ("status",),
    "timedatectl": ("status", "show", "list-timezones"),
    "localectl": ("status", "list-locales"),
    "loginctl": ("list-sessions", "list-users", "show-user", "user-status"),
    "launchctl": ("list", "print"),
    "hyperfine": (),
    "top": ("-b", "-bn1", "-n"),
    "history": (),
    "set": (
        "-e",
        "-u",
        "-x",
        "-eu",
        "-ex",
        "-eux",
        "-euo",
        "-euxo",
        "-o",
        "pipefail",
        "+e",
        "+x",
        "+u",
        "+o",
        "-f",
        "-v",
    ),
    "gunzip": ("-c", "--stdout", "-l", "-t"),
    "gzip": ("-l", "-t", "--list", "--test"),
    "unzip": ("-l", "-t", "-v", "-Z"),
    "shopt": ("-p", "-q"),
    "alias": (),
    "ssh-keygen": ("-l", "-lf"),
    "ssh-add": ("-l", "-L"),
    "dpkg": ("-l", "-L", "-s", "-S", "-p", "--list", "--listfiles", "--status", "--search", "--print-architecture"),
    "rpm": ("-q", "-qa", "-qi", "-ql", "-qf"),
    "brew": ("list", "info", "search", "outdated", "--version", "config", "deps", "uses", "leaves"),
    "snap": ("list", "info", "find"),
    "flatpak": ("list", "info", "search"),
    "xcode-select": ("-p",),
    "pyenv": ("versions", "version", "which", "root"),
    "nvm": ("ls", "current"),
    "rustup": ("show", "--version"),
    "conda": ("list", "info", "search", "--version"),
}
# -- a program that says what it is does nothing else
_VERSION = ("--version", "-V", "-version", "version", "--help", "-h", "help")
_PLAIN_VERSION = [
    "python", "python3", "python2", "node", "deno", "bun", "ruby", "perl", "php", "java", "javac", "go", "gcc", "g++",
    "clang", "cc", "make", "cmake", "ninja", "rustc", "cargo", "pip", "pip3", "npm", "npx", "yarn", "pnpm", "docker",
    "podman", "kubectl", "helm", "terraform", "tofu", "aws", "gcloud", "az", "gh", "git", "psql", "mysql", "sqlite3",
    "redis-cli", "mongosh", "pytest", "mypy", "tox", "nox", "black", "isort", "flake8", "pylint", "eslint",
    "prettier", "tsc", "vite", "jest", "vitest", "uv", "poetry", "pipenv", "hatch", "pdm", "ffmpeg", "convert",
    "magick", "pandoc", "latex", "pdflatex", "vim", "nvim", "emacs", "nano", "code", "tmux", "screen", "ssh", "rsync",
    "curl", "wget", "tar", "zip", "unzip", "gzip", "bash", "zsh", "sh", "fish", "ansible", "vagrant", "packer",
    "consul", "vault", "nomad", "bazel", "gradle", "mvn", "ant", "sbt", "lein", "mix", "elixir", "erl", "ghc",
    "stack", "cabal", "dotnet", "swift", "kotlin", "kotlinc", "scala", "lua", "julia", "R", "Rscript", "octave",
    "matlab", "just", "task", "pre-commit", "semgrep", "bandit",
]  # fmt: skip

_HELP_IS_A_HOST = ("psql", "mysql", "ssh", "redis-cli", "sqlite3", "curl", "docker", "mariadb")

_READS = frozenset(_ALWAYS)


def judge_reader(name: str, words: Sequence[Word], scene: Scene) -> Judgement | None:
    """Harmless, or opaque by an option; None: not one of these programs."""
    texts = [word.text for word in words[1:]]
    if name in _PLAIN_VERSION and len(texts) == 1 and texts[0] in _VERSION and not (
        texts[0] == "-h" and name in _HELP_IS_A_HOST
    ):  # fmt: skip
        return HARMLESS
    if name in _READS:
        return HARMLESS
    if name in _ONLY:
        allowed = _ONLY[name]
        first = texts[0] if texts else None
        if not texts:
            return HARMLESS if name not in ("gunzip", "gzip", "openssl", "gpg", "ssh-keygen", "top") else None
        if first is None or not (first in allowed or (not allowed and not first.startswith("-") and first.isdigit())):
            return None
        if name in ("ip", "set", "hostname", "sysctl", "mount") and not _are_queries(name, texts):
            return None
        if name not in _UNLESS:
            return HARMLESS
    unless = _UNLESS.get(name)
    if unless is None:
        return None
    if name in ("uniq", "xxd") and len([text for text in texts if text is None or not text.startswith("-")]) > 1:
        return None  # the second operand is a file to write
    if name == "date" and any(text and not text.startswith(("-", "+")) and text.isdigit() for text in texts):
        return None
    if name == "dc" and not _is_plain_dc(texts, scene):
        return opaque("dc runs what may be a command")
    if name == "bc" and any(text is None or not text.startswith("-") for text in texts):
        return None
    for word in words[1:]:
        if word.text == "--":
            break
        if word.text is None and unless and word.prefix[:1] in ("", "-"):
            return opaque(f"{name} gets options that only the running shell knows")
        if word.text is not None and given(word.text, unless):
            return opaque(f"{name} {word.text} does more than read")
    return HARMLESS


def given(text: str, options: Sequence[str]) -> bool:
    """Whether a word gives one of the options: alone, in a cluster, with a value, or shortened."""
    if not text.startswith(("-", "+")) or text in ("-", "+"):
        return False
    name = text.partition("=")[0]
    for option in options:
        if option.startswith("--"):
            if text.startswith("--") and len(name) > 3 and option.startswith(name):
                return True
        elif len(option) == 2:
            if not text.startswith("--") and option[1] in text[1:] and text[0] == option[0]:
                return True
        elif name == option or (option == "+" and text.startswith("+")):
            return True
    return False


def _are_queries(name: str, texts: Sequence[str | None]) -> bool:
    if any(text is None for text in texts):
        return False
    known = [text or "" for text in texts]
    if name == "set":
        return all(text in _ONLY["set"] or text in ("pipefail", "errexit", "nounset", "xtrace") for text in known)
    if name == "hostname":
        return all(text.startswith("-") for text in known)
    if name == "mount":
        return all(text.startswith("-") for text in known)
    if name == "sysctl":
        return not any("=" in text or given(text, ("-w", "-p", "--write", "--load", "--system")) for text in known)
    # iproute2 takes its words shortened, so that what changes nothing is listed and not what does
    rest = [text for text in known if text not in _IP_OPTIONS]
    if not rest or rest[0] not in _IP_OBJECTS:
        return False
    return len(rest) == 1 or rest[1] in _IP_SHOWS or (rest[1] == "s" and rest[0][0] in "ar")


_IP_OPTIONS = ("-br", "-brief", "-4", "-6", "-o", "-oneline", "-j", "-json", "-p", "-pretty", "-s", "-stats", "-d",
               "-details", "-c", "-color", "-h", "-human")  # fmt: skip
_IP_OBJECTS = ("addr", "address", "a", "link", "l", "route", "r", "ro", "neigh", "neighbor", "neighbour", "n", "rule")
_IP_SHOWS = ("show", "sh", "list", "ls", "lst", "get", "help")


def _is_plain_dc(texts: Sequence[str | None], scene: Scene) -> bool:
    """`dc` computes, but `!` in what it reads starts a program, and a file may hold one."""
    if any(text is None or "!" in text for text in texts):
        return False
    has_program = any((text or "").startswith(("-e", "--expression")) for text in texts)
    if any(not (text or "").startswith("-") for text in texts[(2 if texts[:1] in (["-e"], ["--expression"]) else 0) :]):
        return False
    if scene.stdin.is_given:
        return scene.stdin.text is not None and "!" not in scene.stdin.text
    return has_program and not any("?" in (text or "") for text in texts)
