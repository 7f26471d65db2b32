"""Programs that CI must have: a test that is skipped because one of them is missing fails there.

`./test` installs them. Elsewhere such a test is skipped, with its reason.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator

import pytest

# program -> how the reasons of skips name it
PROGRAMS = {
    "git": r"\bgit\b",
    "strace": r"\bstrace\b",
    "gcc": r"\bgcc\b|\bcompiler\b",
    "mkfs.ext4": r"\bmkfs\.ext4\b",
    "setfattr": r"\bsetfattr\b",
    "setfacl": r"\bsetfacl\b",
    "redis-server": r"\bredis-server\b",
    "crontab": r"\bcrontab\b",
    "curl": r"\bcurl\b",
    "npm": r"\bnpm\b",
    "node": r"\bnode\b",
    "postgres": r"\bpostgres\b",
    "mkfs.xfs": r"\bmkfs\.xfs\b",
    "mkfs.btrfs": r"\bmkfs\.btrfs\b",
    "bindfs": r"\bbindfs\b",
    "mkfs.exfat": r"\bmkfs\.exfat\b",
    "mount.exfat-fuse": r"\bmount\.exfat-fuse\b",
    "zsh": r"\bzsh\b",
    "fish": r"\bfish\b",
}


def lacking(reason: str) -> str:
    """The program that is missing here and that the reason of a skip speaks of; "" if there is none."""
    for program, words in PROGRAMS.items():
        if re.search(words, reason, re.IGNORECASE) and shutil.which(program) is None:
            return program
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report = yield
    if os.environ.get("CI") and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if program := lacking(reason):
            report.outcome = "failed"
            report.longrepr = f"{program} is missing, and CI must have it ({reason})"
    return report
