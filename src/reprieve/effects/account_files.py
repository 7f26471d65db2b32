"""Read from the files of programs which account they lead to: the parts that count, and a name for people.

A reader is given a path and the part that was asked for (a profile, a context; none: what the file itself chooses). It
returns what people know the choice by ("" if it has no name), and everything that decides about the account, which is
compared and never kept. A file that is not there decides nothing; one that can't be understood counts whole.
"""

from __future__ import annotations

import os

from reprieve.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Read = tuple[str, bytes]  # the name of what was chosen, and what decides
    Take = Callable[[str, Sequence[str], str], Read]


def files_of(take: str, path: str) -> list[str]:
    """The files that a reader may look at, to see whether one of them is written to."""
    if take == "kubeconfig":
        return [part for part in path.split(os.pathsep) if part]
    inside = {
        "docker": ("config.json", "contexts/meta"),
        "gcloud": ("active_config", "configurations"),
        "azure": ("azureProfile.json", "config", "clouds.config"),
    }.get(take)
    if inside is None:
        return [path]
    found = [os.path.join(path, name) for name in inside]
    for folder in [one for one in found if os.path.isdir(one)]:
        found += [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    return found


def _text(path: str, chosen: Sequence[str], home: str) -> Read:
    return "", _bytes(path)


def _aws(path: str, chosen: Sequence[str], home: str) -> Read:
    """The sections of the profiles, and those that they refer to."""
    sections = _sections(path)
    wanted, seen = list(chosen) or ["default"], dict[str, list[str]]()
    while wanted:
        name = wanted.pop()
        for title in (name, f"profile {name}"):
            if title in sections and title not in seen:
                seen[title] = sections[title]
                pairs = [line.partition("=") for line in sections[title]]
                known = {key.strip().lower(): value.strip() for key, _, value in pairs}
                wanted += [known["source_profile"]] if "source_profile" in known else []
                for kind in ("sso-session", "services"):
                    other = f"{kind} {known.get(kind.replace('-', '_'), '')}"
                    if other in sections:
                        seen[other] = sections[other]
    return "", _facts(seen)


def _kubeconfig(path: str, chosen: Sequence[str], home: str) -> Read:
    """The context with its cluster and user; of several files the first that has a thing counts."""
    files = [part for part in path.split(os.pathsep) if part]
    documents = []
    for file in files:
        data = _bytes(file)
        document = _yaml(data)
        if data and not isinstance(document, dict):
            return "", b"\0".join(map(_bytes, files))
        documents.append(document if isinstance(document, dict) else {})

    def named(kind: str, name: object) -> object:
        for document in documents:
            listed = document.get(kind)
            for one in listed if isinstance(listed, list) else ():
                if isinstance(one, dict) and one.get("name") == name:
                    return one
        return None

    current = next((str(one["current-context"]) for one in documents if one.get("current-context")), "")
    name = chosen[0] if chosen else current
    context = named("contexts", name)
    if not isinstance(context, dict) or not isinstance(inner := context.get("context"), dict):
        # no kubeconfig that we understand: all of it counts
        return name, b"\0".join([name.encode(), *map(_bytes, files)])
    return name, _facts([context, named("clusters", inner.get("cluster")), named("users", inner.get("user"))])


def _docker(path: str, chosen: Sequence[str], home: str) -> Read:
    """The context, and where it leads."""
    from hashlib import sha256

    config = _json(os.path.join(path, "config.json"))
    current = config.get("currentContext") if isinstance(config, dict) else None
    name = chosen[0] if chosen else str(current or "default")
    meta = os.path.join(path, "contexts", "meta", sha256(name.encode()).hexdigest(), "meta.json")
    return name, _facts([name, _bytes(meta).decode("utf-8", "replace")])


def _gcloud(path: str, chosen: Sequence[str], home: str) -> Read:
    """The configuration: account, project, zone and the like."""
    active = _bytes(os.path.join(path, "active_config")).decode("utf-8", "replace").strip()
    name = chosen[0] if chosen else active or "default"
    return name, name.encode() + b"\0" + _bytes(os.path.join(path, "configurations", f"config_{name}"))


def _azure(path: str, chosen: Sequence[str], home: str) -> Read:
    """The subscription with its tenant and user, the cloud, and the defaults (the resource group is one)."""
    profile = _json(os.path.join(path, "azureProfile.json"))
    listed = profile.get("subscriptions") if isinstance(profile, dict) else None
    subscriptions = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    if chosen:
        found = [one for one in subscriptions if chosen[0] in (one.get("id"), one.get("name"))]
    else:
        found = [one for one in subscriptions if one.get("isDefault")]
    kept = [{key: one.get(key) for key in ("id", "tenantId", "user", "environmentName")} for one in found]
    others = [_bytes(os.path.join(path, name)).decode("utf-8", "replace") for name in ("config", "clouds.config")]
    return str(found[0].get("name") or "") if found else "", _facts([kept, *others])


def _git(path: str, chosen: Sequence[str], home: str) -> Read:
    """Where the remotes of the repository are, also by the settings of the person."""
    from reprieve.effects.command import environment, found, run_bounded

    keys = r"^(remote\..*\.(url|pushurl|receivepack)|url\..*\.(insteadof|pushinsteadof)|core\.sshcommand)$"
    argv = ["git", "-C", path, "config", "-z", "--get-regexp", keys]
    try:
        _, output, limit = run_bounded(
            found(argv), cwd=path, env={**environment(()), "HOME": home}, timeout_s=20, kept=1 << 20
        )
    except (OSError, Usage):
        return "", b"?"
    return "", b"\0".join(sorted(output.split(b"\0"))) + limit.encode()


TAKES: dict[str, Take] = {
    "text": _text, "aws": _aws, "kubeconfig": _kubeconfig, "docker": _docker, "gcloud": _gcloud, "azure": _azure,
    "git": _git,
}  # fmt: skip


def _bytes(path: str) -> bytes:
    """What a file holds; one that can't be read holds its error, so that it differs from one that can."""
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as e:
        return f"\0{e.strerror}".encode()


def _sections(path: str) -> dict[str, list[str]]:
    """An INI file, line by line: names of sections as the programs compare them, without comments."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in _bytes(path).decode("utf-8", "replace").splitlines():
        text = line.strip()
        if text.startswith("[") and "]" in text:
            title = " ".join(text[1 : text.rindex("]")].replace('"', " ").replace("'", " ").split())
            found.setdefault(title, [])
        elif text and not text.startswith(("#", ";")):
            found.setdefault(title, []).append(text)
    return found


def _json(path: str) -> object:
    import json

    try:
        found: object = json.loads(_bytes(path).decode("utf-8-sig"))
    except ValueError:
        return None
    return found


def _yaml(data: bytes) -> object:
    """The document; None if it is none, or if no reader of YAML is installed and it isn't JSON."""
    import json

    try:
        found: object = json.loads(data)
        return found
    except ValueError:
        pass
    try:
        import yaml
    except ImportError:
        return None
    try:
        found = yaml.load(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError):
        return None
    return found


def _facts(value: object) -> bytes:
    import json

    return json.dumps(value, sort_keys=True, default=str).encode()
