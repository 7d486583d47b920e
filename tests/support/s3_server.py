"""A server of S3 on this machine: moto's, a process of its own, which checks keys and policies.

Three users may do different things: `owner` all, `denied` may not write variables of a SavedModel, and
`stuck` may not remove anything either.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

BUCKET: Final = "models"
_ALL: Final = {"Effect": "Allow", "Action": "*", "Resource": "*"}
_NO_VARIABLES: Final = {"Effect": "Deny", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::*/variables*"}
_NO_REMOVAL: Final = {"Effect": "Deny", "Action": "s3:DeleteObject", "Resource": "arn:aws:s3:::*"}
_USERS: Final = {
    "owner": [_ALL],
    "denied": [_ALL, _NO_VARIABLES],
    "stuck": [_ALL, _NO_VARIABLES, _NO_REMOVAL],
}


@dataclass
class Server:
    """A running server: the environment of each user by name, and a client of the owner's."""

    users: Mapping[str, Mapping[str, str]]
    client: Any

    def put(self, folder: Path, prefix: str, pattern: str = "*") -> None:
        """Upload the files of a folder below a prefix."""
        for path in folder.rglob(pattern):
            if path.is_file():
                self.client.upload_file(str(path), BUCKET, f"{prefix}/{path.relative_to(folder)}")

    def contents(self, prefix: str = "") -> dict[str, bytes]:
        """The objects below a prefix, by what follows it."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        read = {key: self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}
        return {key[len(prefix) :]: content for key, content in read.items()}


@contextmanager
def serve() -> Iterator[Server]:
    """Begin a server with its users and an empty bucket, and end it."""
    import boto3

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    calls = 3 * len(_USERS)
    server = subprocess.Popen(
        [str(Path(sys.executable).with_name("moto_server")), "-H", "127.0.0.1", "-p", str(port)],
        env={**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(calls)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(f"{url}/moto-api/")
        common = {"AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1"}

        def client(of: str, key: str, secret: str) -> Any:
            return boto3.client(
                of,
                endpoint_url=url,
                region_name="us-east-1",
                aws_access_key_id=key,
                aws_secret_access_key=secret,
            )

        users = {}
        iam = client("iam", "first", "calls")
        for name, statements in _USERS.items():
            policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
            iam.create_user(UserName=name)
            iam.put_user_policy(UserName=name, PolicyName="all", PolicyDocument=policy)
            key = iam.create_access_key(UserName=name)["AccessKey"]
            pair = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
            users[name] = common | pair
        users["unknown"] = common | {"AWS_ACCESS_KEY_ID": "AKIANOSUCHKEY", "AWS_SECRET_ACCESS_KEY": "hidden1"}
        owner = users["owner"]
        s3 = client("s3", owner["AWS_ACCESS_KEY_ID"], owner["AWS_SECRET_ACCESS_KEY"])
        s3.create_bucket(Bucket=BUCKET)
        yield Server(users, s3)
    finally:
        server.kill()
        server.wait()


def _wait_for(url: str) -> None:
    for _ in range(300):
        with suppress(OSError):
            urllib.request.urlopen(url, timeout=5).close()
            return
        time.sleep(0.1)
    raise TimeoutError(url)
