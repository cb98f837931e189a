"""Requests that fail, and what their last error says."""

from __future__ import annotations

import errno
import importlib.util
import socket

import pytest

from unitk import registry
from unitk.errors import UsageError
from unitk.remote import store as store_module
from unitk.remote.store import PAUSES, Store, check_address, filesystem, reason, request

SLOW = OSError(errno.EIO, "503 Slow Down")


def failing(times, error, calls):
    def call():
        calls.append(1)
        if len(calls) <= times:
            raise error
        return "answer"

    return call


@pytest.mark.parametrize("error", [SLOW, TimeoutError(), ConnectionResetError()])
def test_a_request_is_repeated_until_it_is_answered(error):
    calls = []
    assert request("s3://b/k", failing(3, error, calls)) == "answer"
    assert len(calls) == 4


def test_the_last_error_names_the_address_the_cause_and_the_tries():
    with pytest.raises(OSError, match="Slow Down; .* 4 ") as raised:
        request("s3://b/k", failing(99, OSError(errno.ENOSPC, "503 Slow Down"), []))
    assert (raised.value.filename, raised.value.errno) == ("s3://b/k", errno.ENOSPC)


@pytest.mark.parametrize("error", [FileNotFoundError("k"), PermissionError("Forbidden")])
def test_what_asking_again_cannot_cure_is_not_asked_again(error):
    calls = []
    with pytest.raises(type(error)) as raised:
        request("s3://b/k", failing(99, error, calls))
    assert (len(calls), raised.value.filename) == (1, "s3://b/k")


@pytest.mark.slow  # s3fs takes a second to be imported
def test_a_server_that_says_nothing_is_not_waited_for(monkeypatch, tmp_path):
    pytest.importorskip("s3fs")
    monkeypatch.setattr(store_module, "ANSWER", 0.3)
    monkeypatch.setattr(store_module, "SLOWEST", 1e9)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        names = {"ENDPOINT_URL": url, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b" * 8}
        for name, text in (names | {"DEFAULT_REGION": "us-east-1"}).items():
            monkeypatch.setenv(f"AWS_{name}", text)
        there, file = Store("s3"), tmp_path / "file"
        file.write_bytes(bytes(1000))
        for ask in (
            lambda: there.info("s3://b/k"),
            lambda: there.read("s3://b/k", 0, 9),
            lambda: there.names("s3://b/k", deep=True),
            lambda: there.put(b"data", "s3://b/k"),
            lambda: there.upload(file, "s3://b/k"),
            lambda: there.remove("s3://b/k"),
        ):
            with pytest.raises(OSError, match="no answer.* 4 "):
                ask()


def test_pauses_double_for_half_a_minute():
    assert store_module.PAUSES is not PAUSES  # the fixture's
    assert all(2 * one == two for one, two in zip(PAUSES, PAUSES[1:], strict=False))
    assert 30 < sum(PAUSES) < 60


@pytest.mark.parametrize(
    "address",
    [
        "s3://me:hunter2hunter2@bucket/key",
        "https://host/file?X-Amz-Signature=hunter2hunter2",
        "https://host/file?a=1&token=hunter2hunter2",
        "https://account.host/file?sv=1&sig=hunter2hunter2",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(address):
    with pytest.raises(UsageError, match="AWS_PROFILE") as raised:
        check_address(address)
    assert "hunter2" not in str(raised.value)


def test_errors_have_no_credentials(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2hunter2")
    said = "no access with hunter2hunter2 to https://host/k?sig=abcdefgh now"
    shown = reason(OSError(said))
    assert "(AWS_SECRET_ACCESS_KEY) to https://host/k?... now" in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize("protocol, package", [("s3", "s3fs"), ("gs", "gcsfs"), ("az", "adlfs")])
def test_a_package_that_is_missing_is_named(monkeypatch, protocol, package):
    find = importlib.util.find_spec

    def missing(name):
        return None if name == package else find(name)

    monkeypatch.setattr(importlib.util, "find_spec", missing)
    with pytest.raises(UsageError, match=f"{protocol}://.*pip install 'unitk.remote.' {package}"):
        filesystem(protocol)


def test_every_protocol_is_a_hub_and_its_path_shows_its_address():
    for protocol in ("s3", "gs", "az", "https", "http", "file"):
        path = registry.get("hub", protocol)("//bucket/a/b.txt", "file")
        whole = f"{protocol}://{'/' * (protocol == 'file')}bucket"
        shown = str(path), str(path.parent / "c"), path.suffix, f"{path.with_name('d')}"
        assert shown == (f"{whole}/a/b.txt", f"{whole}/a/c", ".txt", f"{whole}/a/d")
