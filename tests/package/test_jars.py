"""Jars: the lists, the fetch with a stand-in for Ivy, the cache, and the places they are never taken from."""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sessionlake.errors import ConfigError
from sessionlake.jars import JARS_VARIABLE, LISTS, JarList, cached, copy_to, find_jars, load_list
from sessionlake.jars import fetch as fetch_module
from sessionlake.jars.__main__ import jars_command
from sessionlake.jars.fetch import OnBytes, proxy_options
from sessionlake.jars.java import java_command, require_java
from sessionlake.jars.lists import Jar
from tests.package.support import ROOT

CONTENT = {"a": b"first jar", "b": b"second jar, longer"}


def jar(name: str) -> Jar:
    return Jar(f"org.example:{name}:1.0", len(CONTENT[name]), hashlib.sha256(CONTENT[name]).hexdigest())


MADE = JarList("made", (jar("a"), jar("b")))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(JARS_VARIABLE, raising=False)
    monkeypatch.setattr(fetch_module, "time", type("NoPause", (), {"sleep": staticmethod(lambda _: None)}))
    return tmp_path / "cache" / "sessionlake" / "jars"


class Repository:
    """A stand-in for Ivy: it has `has`, in the order of its calls, and counts what it gave."""

    def __init__(self, *has: dict[str, bytes]) -> None:
        self.has, self.given, self.calls = has, [], 0

    def __call__(self, missing: Sequence[Jar], work: Path, on_bytes: OnBytes) -> None:
        now = self.has[min(self.calls, len(self.has) - 1)]
        self.calls += 1
        (work / "got").mkdir(exist_ok=True)
        for wanted in missing:
            name = wanted.name.split(":")[1]
            if name in now:
                (work / "got" / wanted.file).write_bytes(now[name])
                self.given.append(name)
        on_bytes(1)


def slow_ivy(missing: Sequence[Jar], work: Path, on_bytes: OnBytes) -> None:
    time.sleep(0.3)
    with (work.parent / "fetches").open("a") as file:
        file.write("x")
    Repository(CONTENT)(missing, work, on_bytes)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_fetched_once_then_taken_from_the_cache(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository = Repository(CONTENT)
    folder = cached(MADE, ivy=repository)
    assert contents(folder) == {f"org.example_{name}-1.0.jar": content for name, content in CONTENT.items()}
    assert capsys.readouterr().err == "sessionlake: fetching 2 jars for made from Maven Central, once (0.0 MB)\n"
    assert cached(MADE, ivy=repository) == folder
    assert (repository.calls, capsys.readouterr().err) == (1, "")
    assert sorted(path.name for path in cache.iterdir()) == [folder.name, f"{folder.name}.lock"]
    assert cache.stat().st_mode & 0o077 == 0


def test_an_interrupted_fetch_goes_on_where_it_was() -> None:
    first = Repository({"a": CONTENT["a"]})
    with pytest.raises(
        ConfigError, match=r"^jars: org\.example:b:1\.0 could not be fetched; is Maven Central reachable"
    ):
        cached(MADE, ivy=first)
    second = Repository(CONTENT)
    cached(MADE, ivy=second)
    assert (first.calls, second.given) == (3, ["b"])


def test_a_wrong_hash_is_fetched_again_and_never_used(cache: Path) -> None:
    wrong = {**CONTENT, "b": b"evil jar, as long."}
    assert len(wrong["b"]) == len(CONTENT["b"])
    repository = Repository(wrong)
    with pytest.raises(
        ConfigError, match=r"^jars: org\.example:b:1\.0 came with SHA-256 \w+, but \w+ is pinned; it was not used"
    ):
        cached(MADE, ivy=repository)
    assert repository.given == ["a", "b", "b", "b"]
    assert wrong["b"] not in [file.read_bytes() for file in cache.rglob("*.jar")]
    assert contents(cached(MADE, ivy=Repository(wrong, CONTENT)))["org.example_b-1.0.jar"] == CONTENT["b"]


@pytest.mark.parametrize("harm", ["lost", "cut", "more"])
def test_a_damaged_folder_is_made_again(harm: str) -> None:
    folder = cached(MADE, ivy=Repository(CONTENT))
    whole, victim = contents(folder), folder / "org.example_b-1.0.jar"
    if harm == "lost":
        victim.unlink()
    else:
        (victim if harm == "cut" else folder / "other.jar").write_bytes(b"x")
    assert contents(cached(MADE, ivy=Repository(CONTENT))) == whole


def test_of_several_at_once_one_fetches(cache: Path) -> None:
    # The lock is one of open files: threads with a file each meet it as processes do.
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: cached(MADE, ivy=slow_ivy), range(4)))
    assert len(folders) == 1
    assert (cache / "fetches").read_text() == "x"


def test_another_version_of_a_list_has_another_folder() -> None:
    newer = JarList("made", (jar("a"),))
    assert cached(MADE, ivy=Repository(CONTENT)) != cached(newer, ivy=Repository(CONTENT))


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ConfigError, match=rf"^jars: '{tmp_path}/cache\S*' can't be written .*XDG_CACHE_HOME"):
        cached(MADE, ivy=Repository(CONTENT))


def test_copy_to_a_folder_that_a_machine_without_a_network_uses(tmp_path: Path) -> None:
    cached(MADE, ivy=Repository(CONTENT))
    for _ in range(2):
        copy_to(MADE, tmp_path / "copy")
        assert set(contents(tmp_path / "copy")) == set(MADE.files)
    (tmp_path / "copy" / "other.jar").touch()
    with pytest.raises(ConfigError, match=r"holds other jars \(other\.jar\)"):
        copy_to(MADE, tmp_path / "copy")


def test_jars_from_the_named_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path))
    (tmp_path / "s3").mkdir()
    for name in ("b.jar", "a.jar", "s3/c.jar"):
        (tmp_path / name).touch()
    assert find_jars() == [tmp_path / "a.jar", tmp_path / "b.jar"]
    assert find_jars("s3") == [tmp_path / "s3" / "c.jar"]
    done = CliRunner().invoke(jars_command, ["spark", "s3"])
    assert done.stdout == f"{tmp_path}\n{tmp_path / 's3'}\n"
    with pytest.raises(ConfigError, match=rf"^SESSIONLAKE_JARS: '{tmp_path}/gcs' holds no jars; fill it with"):
        find_jars("gcs")


def test_jars_are_never_taken_from_above_the_current_folder(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "shared" / ".jars" / "planted.jar"
    (planted.parents[1] / "deep").mkdir(parents=True)
    planted.parent.mkdir()
    planted.touch()
    monkeypatch.chdir(planted.parents[1] / "deep")
    spark = load_list("spark")
    folder = cache / spark.folder
    folder.mkdir(parents=True)
    for wanted in spark.jars:
        os.truncate(os.open(folder / wanted.file, os.O_CREAT | os.O_WRONLY), wanted.bytes)
    (folder / str(spark.compiled)).touch()
    assert find_jars() == [folder / name for name in spark.files]


@pytest.mark.parametrize("name", [*LISTS, str(ROOT / "infra" / "kafka" / "jars.toml")])
def test_every_list_pins_each_jar_once(name: str) -> None:
    jars = load_list(name)
    assert len({jar.name.rsplit(":", 1)[0] for jar in jars.jars}) == len(jars.jars)
    for pinned in jars.jars:
        assert len(bytes.fromhex(pinned.sha256)) == 32
        assert pinned.bytes > 1000
        assert all(pinned.name.split(":"))


def test_no_java_or_an_old_one_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=rf"^Java: JAVA_HOME={tmp_path} holds none; install OpenJDK 17 \(Debian"):
        java_command()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(ConfigError, match=r"^Java: .*java is version 11, Spark needs 17 or later; install OpenJDK 17"):
        require_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"^Java: none on PATH, and no JAVA_HOME; install"):
        java_command()


def test_the_proxy_that_pip_uses_is_told_to_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("https_proxy", raising=False)
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    assert proxy_options() == []
    monkeypatch.setenv("HTTPS_PROXY", "http://user:secret@proxy.example:3128")
    assert proxy_options() == ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"]


@pytest.mark.slow
def test_no_network_is_one_line(tmp_path: Path) -> None:
    env: dict[str, Any] = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "HTTPS_PROXY": "http://127.0.0.1:9"}
    command = [sys.executable, "-m", "sessionlake.jars", "openlineage"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    said = done.stderr.splitlines()
    assert (done.returncode, len(said)) == (2, 2)
    assert said[1].startswith(
        "sessionlake: jars: io.openlineage:openlineage-spark_2.13:1.53.0 could not be fetched; is"
    )
