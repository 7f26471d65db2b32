"""Every rule that calls itself tested is run here: the command, its inverse, and the state is as before."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from policy.for_real import World
from policy.reading import shipped
from reprieve.errors import Refused
from reprieve.policy.catalog import instantiate
from reprieve.policy.catalog.model import AFTER, BEFORE
from support.aws import moto


def there(program: str) -> str:
    """The program. Missing, it is a failure in CI and a skip elsewhere."""
    found = shutil.which(program)
    if found is None:
        assert not os.environ.get("CI"), f"{program} is missing; ./test installs it"
        pytest.skip(f"{program} is not installed")
    return found


def round_trip(world: World, state: Callable[[], object], argv: tuple[str, ...], rule: str) -> None:
    """The state changes with the command and is the same again after its inverse."""
    before = state()
    inverse = world.do(*argv, rule=rule)
    assert state() != before, "the command changed nothing, so the test proves nothing"
    world.undo(inverse)
    assert state() == before


# -- git


@pytest.fixture
def repo(tmp_path: Path) -> World:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\nname = A\nemail = a@b.example\n[init]\ndefaultBranch = main\n")
    remote, here = tmp_path / "remote.git", tmp_path / "here"
    env = {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", "XDG_CONFIG_HOME": str(home)}
    for key in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        os.environ.pop(key, None)
    World(tmp_path, env).run("git", "init", "-q", "--bare", str(remote))
    here.mkdir()
    world = World(here, env)
    world.run("git", "init", "-q")
    world.run("git", "remote", "add", "origin", str(remote))
    for name in ("one", "two"):
        (here / name).write_text(name)
        world.run("git", "add", "-A")
        world.run("git", "commit", "-qm", name)
    world.run("git", "push", "-q", "origin", "main")
    world.run("git", "branch", "side", "HEAD~1")
    world.run("git", "tag", "v1")
    world.run("git", "tag", "-a", "-m", "two", "v2", "HEAD~1")
    return world


def refs(world: World) -> Callable[[], str]:
    return lambda: world.run(
        "git", "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags", "refs/stash"
    )


def remote_refs(world: World) -> Callable[[], str]:
    return lambda: world.run("git", "ls-remote", "origin")


def config(world: World, where: str) -> Callable[[], str]:
    return lambda: "\n".join(sorted(world.run("git", "config", where, "--list", ok=False).splitlines()))


@pytest.mark.parametrize(
    ("argv", "rule"),
    [
        (("git", "branch", "-D", "side"), "git.branch.delete"),
        (("git", "branch", "-D", "side", "other"), "git.branch.delete"),
        (("git", "branch", "-m", "side", "edge"), "git.branch.rename"),
        (("git", "branch", "-M", "side", "other"), "git.branch.rename"),
        (("git", "branch", "new"), "git.branch.create"),
        (("git", "branch", "new", "HEAD~1"), "git.branch.create"),
        (("git", "tag", "-d", "v1", "v2"), "git.tag.delete"),
        (("git", "tag", "v3"), "git.tag.create"),
        (("git", "tag", "-a", "v3", "-m", "three"), "git.tag.create"),
        (("git", "tag", "-f", "v1", "HEAD~1"), "git.tag.move"),
        (("git", "tag", "-f", "v9"), "git.tag.move"),
    ],
)
def test_git_refs_come_back(repo: World, argv: tuple[str, ...], rule: str) -> None:
    repo.run("git", "branch", "other")
    round_trip(repo, refs(repo), argv, rule)


def test_bad_case_33_a_branch_comes_back_after_another_folder_was_the_current_one(repo: World, tmp_path: Path) -> None:
    """`git -C`: captures and inverse are for the same repository."""
    outside = World(tmp_path, repo.env)
    round_trip(outside, refs(repo), ("git", "-C", "here", "branch", "-D", "side"), "git.branch.delete")


@pytest.mark.parametrize("argv", [("git", "stash", "drop", "stash@{0}"), ("git", "stash", "drop")])
def test_a_dropped_stash_comes_back_with_its_title(repo: World, argv: tuple[str, ...]) -> None:
    (repo.folder / "one").write_text("work")
    repo.run("git", "stash", "push", "-q", "-m", "my work")
    rule = "git.stash.drop" if len(argv) == 4 else "git.stash.drop.last"
    round_trip(repo, lambda: repo.run("git", "stash", "list", "--format=%H %gs"), argv, rule)


@pytest.mark.parametrize(
    ("argv", "rule"),
    [
        (("git", "remote", "add", "up", "https://x.example/r"), "git.remote.add"),
        (("git", "remote", "set-url", "origin", "https://x.example/r"), "git.remote.set-url"),
        (("git", "remote", "rename", "origin", "up"), "git.remote.rename"),
        (("git", "config", "user.name", "B"), "git.config.set"),
        (("git", "config", "--local", "color.ui", "never"), "git.config.set"),
        (("git", "config", "--unset", "pull.rebase"), "git.config.unset"),
    ],
)
def test_git_settings_come_back(repo: World, argv: tuple[str, ...], rule: str) -> None:
    repo.run("git", "config", "pull.rebase", "true")
    round_trip(repo, config(repo, "--local"), argv, rule)


@pytest.mark.parametrize("value", ["user.name", "advice.detachedHead"])
def test_git_settings_of_the_person_come_back(repo: World, value: str) -> None:
    round_trip(repo, config(repo, "--global"), ("git", "config", "--global", value, "x"), "git.config.set.global")


@pytest.mark.parametrize(
    ("prepare", "argv", "rule"),
    [
        ((), ("git", "push", "origin", "side"), "git.push.refs"),
        (("commit",), ("git", "push", "-q", "origin", "main"), "git.push.refs"),
        (("amend",), ("git", "push", "--force", "origin", "main"), "git.push.refs"),
        ((), ("git", "push", "-q", "origin", "--delete", "main"), "git.push.delete"),
        ((), ("git", "push", "-q", "-d", "origin", "main", "old"), "git.push.delete"),
        ((), ("git", "push", "-q", "origin", "v1"), "git.push.refs"),
        ((), ("git", "push", "-q", "origin", "v2"), "git.push.refs"),
        ((), ("git", "push", "-q", "origin", "refs/tags/v1:refs/tags/v9"), "git.push.refs"),
        ((), ("git", "push", "-q", "origin", "+v2:refs/tags/old"), "git.push.refs"),
        ((), ("git", "push", "-q", "origin", ":main"), "git.push.refs"),
        ((), ("git", "push", "-q", "origin", ":refs/tags/old"), "git.push.refs"),
        ((), ("git", "push", "-q", "origin", "side:refs/heads/other"), "git.push.refs"),
        (("amend",), ("git", "push", "-q", "origin", "+main"), "git.push.refs"),
        ((), ("git", "push", "-q", "origin", "side", "v1", "HEAD:refs/heads/new", ":main"), "git.push.refs"),
        (("commit",), ("git", "push", "-q", "origin", "HEAD"), "git.push.head"),
        (("commit",), ("git", "push", "-q", "-u", "origin", "+HEAD"), "git.push.head"),
    ],
)
def test_bad_case_32_a_push_is_taken_back(
    repo: World, prepare: tuple[str, ...], argv: tuple[str, ...], rule: str
) -> None:
    """New branches and tags, a fast-forward, a force-push, a deletion, and several at once."""
    repo.run("git", "push", "-q", "origin", "v1:refs/tags/old")
    repo.run("git", "-C", str(repo.folder.parent / "remote.git"), "config", "receive.denyDeleteCurrent", "ignore")
    if "commit" in prepare:
        repo.run("git", "commit", "-q", "--allow-empty", "-m", "three")
    if "amend" in prepare:
        repo.run("git", "commit", "-q", "--amend", "-m", "another two")
    round_trip(repo, remote_refs(repo), argv, rule)


def test_bad_case_32_what_somebody_pushed_later_is_kept(repo: World, tmp_path: Path) -> None:
    """The inverse carries a lease on what we left: a later commit of a person refuses it."""
    repo.run("git", "commit", "-q", "--allow-empty", "-m", "the agent's")
    inverse = repo.do("git", "push", "-q", "origin", "main", rule="git.push.refs")
    World(tmp_path, repo.env).run("git", "clone", "-q", str(tmp_path / "remote.git"), "person")
    person = World(tmp_path / "person", repo.env)
    person.run("git", "commit", "-q", "--allow-empty", "-m", "a person's")
    person.run("git", "push", "-q", "origin", "main")
    theirs = remote_refs(repo)()
    repo.undo(inverse, ok=False)
    assert remote_refs(repo)() == theirs


def test_a_force_push_over_commits_that_are_not_here_is_taken_back(repo: World, tmp_path: Path) -> None:
    """What is overwritten is fetched first: without its objects nothing could be pushed back."""
    World(tmp_path, repo.env).run("git", "clone", "-q", str(tmp_path / "remote.git"), "person")
    person = World(tmp_path / "person", repo.env)
    person.run("git", "commit", "-q", "--allow-empty", "-m", "a person's")
    person.run("git", "push", "-q", "origin", "main")
    round_trip(repo, remote_refs(repo), ("git", "push", "-f", "origin", "main"), "git.push.refs")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("remote.origin.pushurl", "elsewhere.git"),
        ("remote.origin.push", "refs/heads/main:refs/heads/other"),
        ("push.default", "upstream"),
        ("push.followTags", "true"),
        ("url.elsewhere.pushInsteadOf", "remote"),
    ],
)
def test_a_push_that_settings_send_elsewhere_has_no_inverse(repo: World, setting: str, value: str) -> None:
    """The looks would look at other refs, or at another repository, than the push changes."""
    repo.run("git", "config", setting, value)
    with pytest.raises(Refused, match="does not answer as the rule needs it"):
        repo.do("git", "push", "-q", "origin", "side", rule="git.push.refs")


def test_a_push_of_head_has_no_inverse_if_another_branch_was_checked_out_meanwhile(repo: World) -> None:
    """As in `git switch -c new && git push origin HEAD`, which is looked at before the whole line."""
    match = shipped().match_command(["git", "push", "-q", "origin", "HEAD"])
    assert match is not None
    captured: dict[str, str | tuple[str, ...]] = {}
    repo.take(match, BEFORE, captured)
    repo.run("git", "switch", "-q", "-c", "new")
    repo.run("git", "push", "-q", "origin", "HEAD")
    repo.take(match, AFTER, captured)
    with pytest.raises(Refused, match="nothing in the rule fits"):
        instantiate(match, captured)


# -- pip


def wheel(folder: Path, name: str, version: str, needs: str = "") -> None:
    """A wheel with one module, made by hand."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", f"version = {version!r}\n")
        needed = f"Requires-Dist: {needs}\n" if needs else ""
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("pip")
    subprocess.run([sys.executable, "-m", "venv", "env"], cwd=folder, check=True)
    wheels = folder / "wheels"
    wheels.mkdir()
    wheel(wheels, "mango", "1.0")
    wheel(wheels, "mango", "2.0", needs="papaya")
    wheel(wheels, "papaya", "1.0")
    env = {
        "PATH": f"{folder}/env/bin:{os.environ['PATH']}", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels),
        "PIP_CONFIG_FILE": "/dev/null", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }  # fmt: skip
    return World(folder, env)


def test_packages_that_pip_installed_updated_or_removed_come_back(environment: World) -> None:
    def state() -> str:
        return environment.run("pip", "freeze", "--all")

    round_trip(environment, state, ("pip", "install", "-q", "mango"), "pip.install")  # with its dependency
    environment.run("pip", "install", "-q", "mango==1.0")
    round_trip(environment, state, ("pip", "install", "-q", "-U", "mango"), "pip.install")
    round_trip(environment, state, ("pip", "uninstall", "-q", "-y", "mango"), "pip.uninstall")


# -- npm


def test_a_global_package_of_npm_is_taken_out_again(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed; it is too large to be installed for one test")
    package = tmp_path / "pear"
    package.mkdir()
    (package / "package.json").write_text('{"name": "pear", "version": "1.0.0"}')
    env = {
        "NPM_CONFIG_PREFIX": str(tmp_path / "prefix"),
        "NPM_CONFIG_CACHE": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
    }
    env |= {"NPM_CONFIG_OFFLINE": "true", "NPM_CONFIG_UPDATE_NOTIFIER": "false"}
    world = World(tmp_path, env)
    (tmp_path / "prefix" / "lib").mkdir(parents=True)
    world.run("npm", "pack", "--silent", "./pear")

    def state() -> list[str]:
        return sorted(os.listdir(tmp_path / "prefix" / "lib" / "node_modules")) if (
            tmp_path / "prefix" / "lib" / "node_modules"
        ).exists() else []  # fmt: skip

    argv = ("npm", "install", "-g", "--silent", str(tmp_path / "pear-1.0.0.tgz"))
    inverse = world.do(*argv, rule="npm.install.global")
    assert state() == ["pear"]
    world.undo(inverse)
    assert state() == []


# -- programs that change a file of settings or state here


@pytest.mark.slow
def test_the_workspace_of_terraform_and_its_marks_come_back(tmp_path: Path) -> None:
    there("terraform")
    (tmp_path / "main.tf").write_text('resource "terraform_data" "a" {}\n')
    world = World(tmp_path, {"HOME": str(tmp_path), "CHECKPOINT_DISABLE": "1", "TF_CLI_CONFIG_FILE": ""})
    world.run("terraform", "init", "-no-color")
    world.run("terraform", "apply", "-auto-approve", "-no-color")

    def marks() -> str:
        return world.run("terraform", "state", "show", "-no-color", "terraform_data.a")

    round_trip(world, marks, ("terraform", "taint", "terraform_data.a"), "terraform.taint")
    world.run("terraform", "taint", "terraform_data.a")
    round_trip(world, marks, ("terraform", "untaint", "terraform_data.a"), "terraform.untaint")

    def workspaces() -> str:
        return world.run("terraform", "workspace", "list")

    round_trip(world, workspaces, ("terraform", "workspace", "new", "side"), "terraform.workspace.new")
    world.run("terraform", "workspace", "new", "side")
    round_trip(world, workspaces, ("terraform", "workspace", "select", "default"), "terraform.workspace.select")


def test_the_context_of_kubectl_comes_back(tmp_path: Path) -> None:
    there("kubectl")
    world = World(tmp_path, {"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "config")})
    for name in ("one", "two"):
        world.run("kubectl", "config", "set-context", name)

    def state() -> str:
        return world.run("kubectl", "config", "view")

    round_trip(world, state, ("kubectl", "config", "use-context", "one"), "kubectl.config.use-context")  # none was set
    world.run("kubectl", "config", "use-context", "one")
    round_trip(world, state, ("kubectl", "config", "use-context", "two"), "kubectl.config.use-context")


@pytest.mark.slow
def test_a_setting_of_gcloud_comes_back(tmp_path: Path) -> None:
    there("gcloud")
    world = World(tmp_path, {"HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path / "gcloud")})

    def state() -> str:
        return world.run("gcloud", "config", "list", "--format=json")

    round_trip(world, state, ("gcloud", "config", "set", "core/verbosity", "error"), "gcloud.config.set")
    world.run("gcloud", "config", "set", "core/verbosity", "error")
    round_trip(world, state, ("gcloud", "config", "set", "core/verbosity", "warning"), "gcloud.config.set")


# -- aws


@pytest.mark.slow
def test_what_aws_made_or_changed_comes_back(tmp_path: Path) -> None:
    """The real program with a server that stands in for Amazon's."""
    there("aws")
    with moto(tmp_path) as amazon:
        arn, machine = amazon.populate()
        world, state = World(tmp_path, {"HOME": str(tmp_path)}), amazon.state
        tag = ("aws", "ec2", "create-tags", "--resources", machine, "--tags", "Key=owner,Value=bob")
        policy = ("aws", "iam", "attach-user-policy", "--user-name", "ann", "--policy-arn", arn)
        round_trip(world, state, ("aws", "s3", "mb", "s3://fresh"), "aws.s3.mb")
        round_trip(world, state, ("aws", "iam", "create-user", "--user-name", "bob"), "aws.iam.create-user")
        round_trip(world, state, policy, "aws.iam.attach-user-policy")
        round_trip(world, state, tag, "aws.ec2.create-tags")
        amazon.client("ec2").create_tags(Resources=[machine], Tags=[{"Key": "owner", "Value": "ann"}])
        round_trip(world, state, tag, "aws.ec2.create-tags")
        round_trip(world, state, ("aws", "ec2", "stop-instances", "--instance-ids", machine), "aws.ec2.stop")
        amazon.client("ec2").stop_instances(InstanceIds=[machine])
        round_trip(world, state, ("aws", "ec2", "start-instances", "--instance-ids", machine), "aws.ec2.start")


# -- crontab


@pytest.mark.root
def test_a_table_of_timed_commands_comes_back(tmp_path: Path) -> None:
    there("crontab")
    world = World(tmp_path)
    user = "nobody"
    if world.run("crontab", "-u", user, "-l", ok=False):
        pytest.skip("nobody has a crontab here; it stays as it is")

    def state() -> str:
        return world.run("crontab", "-u", user, "-l", ok=False)

    (tmp_path / "one").write_text("0 4 * * * true # one\n")
    (tmp_path / "two").write_text("0 5 * * * true # two\n")
    try:
        round_trip(world, state, ("crontab", "-u", user, str(tmp_path / "one")), "crontab.replace")  # there was none
        world.run("crontab", "-u", user, str(tmp_path / "one"))
        round_trip(world, state, ("crontab", "-u", user, str(tmp_path / "two")), "crontab.replace")
        round_trip(world, state, ("crontab", "-u", user, "-r"), "crontab.remove")
    finally:
        world.run("crontab", "-u", user, "-r", ok=False)


# -- redis


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, tuple[str, ...]]]:
    there("redis-server"), there("redis-cli")
    folder = tmp_path_factory.mktemp("redis")
    socket = folder / "s"
    server = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)],
        stdout=subprocess.DEVNULL,
    )
    try:
        world = World(folder)
        client = ("redis-cli", "-s", str(socket))
        for _ in range(200):
            if "PONG" in world.run(*client, "PING", ok=False):
                break
            time.sleep(0.05)  # a real server starts
        yield world, client
    finally:
        server.terminate()
        server.wait(10)


REDIS = [
    (("SET", "text", "new"), "redis.key"),
    (("SET", "fresh", "new"), "redis.key"),
    (("set", "text", "x", "EX", "100"), "redis.key"),
    (("HSET", "hash", "a", "9"), "redis.key"),
    (("RPUSH", "list", "z"), "redis.key"),
    (("SADD", "set", "z"), "redis.key"),
    (("ZADD", "zset", "9", "z"), "redis.key"),
    (("INCR", "number"), "redis.key"),
    (("EXPIRE", "text", "100"), "redis.key"),
    (("DEL", "text"), "redis.del"),
    (("DEL", "list", "hash", "binary"), "redis.del"),
    (("RENAMENX", "text", "renamed"), "redis.rename"),
]


@pytest.mark.parametrize(("words", "rule"), REDIS)
def test_keys_of_redis_come_back(redis: tuple[World, tuple[str, ...]], words: tuple[str, ...], rule: str) -> None:
    world, client = redis
    world.run(*client, "FLUSHALL")
    for line in (
        "SET text old", "SET number 5", "HSET hash a 1 b 2", "RPUSH list a b c", "SADD set a", "ZADD zset 1 a",
        "SET timed x EX 5000",
    ):  # fmt: skip
        world.run(*client, *line.split())
    world.run(*client, "-x", "SET", "binary", stdin="\udcff\udcfe\n\r\x00tail\n")

    def state() -> dict[str, tuple[str, bool]]:
        keys = sorted(world.run(*client, "--raw", "KEYS", "*").split())
        return {
            key: (world.run(*client, "--raw", "DUMP", key), world.run(*client, "--raw", "TTL", key) != "-1\n")
            for key in keys
        }

    round_trip(world, state, (*client, *words), rule)


def test_a_time_to_live_of_redis_comes_back(redis: tuple[World, tuple[str, ...]]) -> None:
    world, client = redis
    world.run(*client, "SET", "timed", "x", "EX", "5000")
    inverse = world.do(*client, "SET", "timed", "y", rule="redis.key")
    world.undo(inverse)
    assert world.run(*client, "GET", "timed") == "x\n"
    assert 4000 < int(world.run(*client, "TTL", "timed")) <= 5000


# -- and nothing claims what was not tried


def test_every_rule_that_says_it_is_tested_was_run() -> None:
    """A rule that claims a test is named in one of those above."""
    claimed = {rule.id for rule in shipped().commands if rule.tested} | {r.id for r in shipped().requests if r.tested}
    source = Path(__file__).read_text(encoding="utf-8")
    assert {rule for rule in claimed if f'"{rule}"' not in source} == set()
