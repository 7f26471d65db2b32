"""The real aws program against a server that stands in for Amazon's."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3

POLICY = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'


class Amazon:
    """The server, seen with another program than the one under test: starting `aws` takes a second each time."""

    def __init__(self, home: Path, url: str) -> None:
        self.home, self.url = home, url  # the home of a user of that server

    def client(self, service: str) -> Any:
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "y"}
        return boto3.client(service, endpoint_url=self.url, region_name="us-east-1", **keys)

    def populate(self) -> tuple[str, str]:
        """A user `ann`, a policy and a machine; the names of the latter two."""
        iam = self.client("iam")
        iam.create_user(UserName="ann")
        arn = iam.create_policy(PolicyName="p", PolicyDocument=POLICY)["Policy"]["Arn"]
        made = self.client("ec2").run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)
        return arn, made["Instances"][0]["InstanceId"]

    def state(self) -> list[object]:
        iam, ec2, s3 = self.client("iam"), self.client("ec2"), self.client("s3")
        return [
            sorted(user["UserName"] for user in iam.list_users()["Users"]),
            iam.list_attached_user_policies(UserName="ann")["AttachedPolicies"],
            ec2.describe_tags()["Tags"],
            [one["State"]["Name"] for each in ec2.describe_instances()["Reservations"] for one in each["Instances"]],
            [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]],
        ]


@contextlib.contextmanager
def moto(folder: Path) -> Iterator[Amazon]:
    """Run the server; `folder` becomes the home of its user."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    (folder / ".aws").mkdir()
    (folder / ".aws" / "credentials").write_text("[default]\naws_access_key_id = x\naws_secret_access_key = y\n")
    (folder / ".aws" / "config").write_text(f"[default]\nregion = us-east-1\nendpoint_url = {url}\n")
    with open(folder / "moto.log", "wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
        )
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/moto-api/", timeout=5):
                break
            assert server.poll() is None, (folder / "moto.log").read_text()
            time.sleep(0.1)  # a real server starts
        yield Amazon(folder, url)
    finally:
        server.terminate()
        server.wait(10)
