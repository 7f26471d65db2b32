"""Which environment variables change what programs do, so that setting one makes a command opaque. Pure data."""

from __future__ import annotations

_DANGEROUS_PREFIXES = (
    "LD_",
    "DYLD_",
    "GIT_",
    "PYTHON",
    "PERL5",
    "RUBY",
    "NODE_",
    "BASH_",
    "npm_config_",
    "NPM_CONFIG_",
)
_DANGEROUS = frozenset((
    "PATH", "ENV", "PAGER", "EDITOR", "VISUAL", "LESSOPEN", "LESSCLOSE", "LESS", "MANPAGER", "BROWSER",
    "PROMPT_COMMAND", "PS4", "IFS",
    "SHELLOPTS", "BASHOPTS", "SHELL", "HOME", "CDPATH", "ZDOTDIR", "JAVA_TOOL_OPTIONS", "PSQLRC", "INPUTRC",
    "GCONV_PATH",
    "HOSTALIASES", "PROMPT", "EXINIT", "VIMINIT", "CC", "CXX", "MAKEFLAGS", "RUSTC_WRAPPER", "GOFLAGS", "MAVEN_OPTS",
    "SUDO_ASKPASS",
    "SSH_ASKPASS", "KUBECONFIG", "DOCKER_HOST", "AWS_CONFIG_FILE", "TAR_OPTIONS", "RSYNC_RSH", "CVS_RSH",
    "PGSERVICEFILE",
    "GREP_OPTIONS", "RIPGREP_CONFIG_PATH", "XDG_CONFIG_HOME", "FPATH",
))  # fmt: skip
_FINE = frozenset((
    "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_DATE",
    "GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED",
    "PYTHONIOENCODING",
    "PYTHONUTF8", "PYTHONWARNINGS", "NODE_ENV",
))  # fmt: skip


def is_dangerous(name: str) -> bool:
    """Whether setting a variable can change which program runs, or what it does."""
    return name not in _FINE and (
        name in _DANGEROUS or name.startswith(_DANGEROUS_PREFIXES) or name.endswith(("_PRELOAD", "_COMMAND"))
    )


# commands that set variables by name, and those that change the folder
SETS_VARIABLES = (
    "read",
    "mapfile",
    "readarray",
    "getopts",
    "printf",
    "let",
    "declare",
    "local",
    "typeset",
    "eval",
    "unset",
)
MOVES = ("cd", "pushd", "popd")
LOADS = ("source", ".", "eval")  # run text in the shell itself, which may set anything
