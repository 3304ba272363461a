"""An S3 of the tests' own: moto behind a server that counts requests, fails some of them and lets credentials expire."""

from __future__ import annotations

import datetime
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_ERROR = "<?xml version='1.0'?><Error><Code>{0}</Code><Message>{0}</Message></Error>"
_TAKEN = 8
_KEY = re.compile(r"Credential=([^/]+)/")


class Store:
    """What the server has seen, and what it does to requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: Counter[str] = Counter()
        """How often a method was asked for."""
        self.failing = 0.0
        """The share of requests that are answered with "slow down"."""
        self.expired: set[str] = set()
        """Keys that are not taken any more."""
        self.refused = 0
        self.handed = 0
        """How many keys were handed out. Of these, only the newest few are taken."""
        self._seen = 0

    def answer(self, method: str, authorization: str) -> tuple[str, str] | None:
        """Return an error for a request, as its status and code; None if it is to be done."""
        self.requests[method] += 1
        key = _KEY.search(authorization)
        if key is not None and key[1] in self.expired:
            self.refused += 1
            return "400 Bad Request", "ExpiredToken"
        self._seen += 1
        if self.failing and self._seen % 10 < 10 * self.failing:
            self.refused += 1
            return "503 Slow Down", "SlowDown"
        return None

    def hand_out(self) -> bytes:
        """Return a new key that ends soon, as a container's role does."""
        self.handed += 1
        self.expired.add(f"key{self.handed - _TAKEN}")
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30)
        return json.dumps({
            "AccessKeyId": f"key{self.handed}", "SecretAccessKey": "s", "Token": "t", "RoleArn": "r",
            "Expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }).encode()  # fmt: skip

    def role(self, token: Path) -> dict[str, str]:
        """Return settings with which clients ask for keys, and ask again; `token` is a file for what they show."""
        token.write_text("anybody")
        role = {"CREDENTIALS_FULL_URI": f"{self.url}/credentials", "AUTHORIZATION_TOKEN_FILE": str(token)}
        named = {f"AWS_CONTAINER_{name}": value for name, value in role.items()}
        return {name: value for name, value in self.environment().items() if "KEY" not in name} | named

    def environment(self, key: str = "first") -> dict[str, str]:
        """Return the settings with which fsspec and deltalake find it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": "anything",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_REGION": "us-east-1",
        }

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """Count the requests of a block."""
        before = Counter(self.requests)
        found: Counter[str] = Counter()
        yield found
        found.update(self.requests - before)


@contextmanager
def object_store() -> Iterator[Store]:
    """Serve a store on loopback."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    inner = DomainDispatcherApplication(create_backend_app)

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/credentials":
            start_response("200 OK", [("Content-Type", "application/json")])
            return [store.hand_out()]
        error = store.answer(environ["REQUEST_METHOD"], environ.get("HTTP_AUTHORIZATION", ""))
        if error is None:
            return inner(environ, start_response)  # type: ignore[no-any-return]
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        body = _ERROR.format(error[1]).encode()
        start_response(error[0], [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]

    server = make_server("127.0.0.1", 0, app, threaded=True)
    store = Store(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def forget_clients(patch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """Let this process find a store anew: fsspec keeps its clients with the credentials that they began with."""
    import s3fs

    from braided.storage.files import files_at

    for name, value in environment.items():
        patch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    files_at.cache_clear()
