"""What selects an account changes between an effect and its undo. kubectl is stood in for by a script; git is real."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from effects.test_commands import git, remote  # noqa: F401 - a fixture
from support import Cli

# a cluster is a file, whose name the kubeconfig gives as the server of its current context
KUBECTL = """#!/usr/bin/python3
import json, os, sys
config = json.load(open(os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")))
context = next(one["context"] for one in config["contexts"] if one["name"] == config["current-context"])
path = next(one["cluster"]["server"] for one in config["clusters"] if one["name"] == context["cluster"])
cluster, words = json.load(open(path)), sys.argv[1:]
if words[0] == "scale":
    cluster["replicas"] = int(words[-1].partition("=")[2])
    json.dump(cluster, open(path, "w"))
elif words[0] == "get":
    sys.stdout.write(str(cluster["replicas"]))
"""


class Clusters:
    """Two clusters, and a kubeconfig for each; ~/.kube/config leads to prod."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "person/.kube").mkdir(parents=True)
        self.kubectl = folder / "kubectl"
        self.kubectl.write_text(KUBECTL)
        self.kubectl.chmod(0o755)
        for name, replicas in (("prod", 20), ("staging", 2)):
            (folder / name).write_text(json.dumps({"replicas": replicas}))
            self.configure(folder / f"kube-{name}", name)
        self.default = folder / "person/.kube/config"
        self.configure(self.default, "prod")

    def configure(self, file: Path, current: str) -> None:
        names = ("prod", "staging")
        config = {
            "current-context": current,
            "contexts": [{"name": name, "context": {"cluster": name}} for name in names],
            "clusters": [{"name": name, "cluster": {"server": str(self.folder / name)}} for name in names],
        }
        file.write_text(json.dumps(config))

    @property
    def replicas(self) -> dict[str, int]:
        return {name: json.loads((self.folder / name).read_text())["replicas"] for name in ("prod", "staging")}


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clusters:
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    for name in [name for name in os.environ if name.startswith(("KUBE", "AWS_", "CLOUDSDK_", "AZURE_"))]:
        monkeypatch.delenv(name)
    return Clusters(tmp_path)


def test_captures_and_inverse_use_the_kubeconfig_of_the_command(
    cli: Cli, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look before it, which says how many there were, goes to the same cluster as well."""
    cli("checkpoint", "base")
    monkeypatch.setenv("KUBECONFIG", str(clusters.folder / "kube-staging"))
    cli("run", "--", str(clusters.kubectl), "scale", "deploy/api", "--replicas=5")
    assert clusters.replicas == {"prod": 20, "staging": 5}
    monkeypatch.delenv("KUBECONFIG")
    (effect,) = cli("effects", "--json").json["effects"]
    assert effect["account"].startswith(f"KUBECONFIG={clusters.folder}/kube-staging, ")
    assert effect["account"].endswith(": staging")
    cli("rollback", "base", "--yes")
    assert clusters.replicas == {"prod": 20, "staging": 2}


def test_a_context_that_was_switched_since_is_refused_until_it_is_switched_back(cli: Cli, clusters: Clusters) -> None:
    clusters.configure(clusters.default, "staging")
    cli("checkpoint", "base")
    cli("run", "--", str(clusters.kubectl), "scale", "deploy/api", "--replicas=5")
    clusters.configure(clusters.default, "prod")
    plan = cli("rollback", "base", "--dry-run").out
    assert "it chose staging then, and prod now" in plan
    refused = cli("rollback", "base", "--yes", "--json", check=False)
    assert refused.code != 0 and refused.json["report"]["effects"][0]["state"] == "failed"
    assert clusters.replicas == {"prod": 20, "staging": 5}
    clusters.configure(clusters.default, "staging")
    cli("rollback", "base", "--yes")
    assert clusters.replicas == {"prod": 20, "staging": 2}


def test_a_kubeconfig_in_the_workspace_gives_no_inverse_and_says_why(
    cli: Cli, clusters: Clusters, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters.configure(project / "kubeconfig", "staging")
    monkeypatch.setenv("KUBECONFIG", "kubeconfig")
    cli("run", "--", str(clusters.kubectl), "scale", "deploy/api", "--replicas=5")
    (effect,) = cli("effects", "--json").json["effects"]
    assert effect["inverse"] is None and "KUBECONFIG names a file in the workspace" in effect["detail"]


def test_a_person_at_another_home_undoes_in_the_account_of_the_effect(
    cli: Cli, clusters: Clusters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `sudo reprieve undo`: what is in ~ is what was there then."""
    clusters.configure(clusters.default, "staging")
    cli("checkpoint", "base")
    cli("run", "--", str(clusters.kubectl), "scale", "deploy/api", "--replicas=5")
    (tmp_path / "root/.kube").mkdir(parents=True)
    clusters.configure(tmp_path / "root/.kube/config", "prod")
    monkeypatch.setenv("HOME", str(tmp_path / "root"))
    cli("rollback", "base", "--yes")
    assert clusters.replicas == {"prod": 20, "staging": 2}


def test_a_push_is_not_undone_at_another_remote(cli: Cli, project: Path, remote: Path) -> None:  # noqa: F811
    """The name of the remote leads to another repository by now, which has the same commits."""
    cli("checkpoint", "base")
    git(project, "commit", "-qam", "two", "--allow-empty")
    cli("run", "--", "git", "push", "-q", "origin", "main")
    fork = project.parent / "fork.git"
    git(project.parent, "clone", "-q", "--bare", str(remote), str(fork))
    pushed = git(fork, "rev-parse", "main")
    git(project, "remote", "set-url", "origin", str(fork))
    cli("rollback", "base", "--yes", "--pushed", check=False)
    assert git(fork, "rev-parse", "main") == git(remote, "rev-parse", "main") == pushed
