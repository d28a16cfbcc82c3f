"""The file system of local masters (jars/LocalFiles.scala): Hadoop's in all that it does, without a child process, and with renames in one step."""

import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

ROUNDS = 100


class Files:
    """Hadoop's two interfaces to local files, as Spark and Delta call them."""

    def __init__(self, spark: SparkSession) -> None:
        self.jvm: Any = spark._jvm
        conf = spark._jsc.hadoopConfiguration()
        uri = self.jvm.java.net.URI("file:///")
        self.system = self.jvm.org.apache.hadoop.fs.FileSystem.get(uri, conf)
        self.context = self.jvm.org.apache.hadoop.fs.FileContext.getFileContext(uri, conf)
        option = self.jvm.org.apache.hadoop.fs.Options.Rename
        of_options = self.jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename")
        self.options = {
            overwrite: self.jvm.java.lang.reflect.Array.newInstance(of_options, int(overwrite))
            for overwrite in (False, True)
        }
        self.options[True][0] = option.OVERWRITE

    def path(self, path: Path) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(str(path))

    def write(self, path: Path, text: str) -> None:
        out = self.system.create(self.path(path), True)
        out.write(bytearray(text.encode()))
        out.close()

    def read(self, path: Path) -> str:
        stream = self.system.open(self.path(path))
        try:
            return bytes(self.jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def rename(self, source: Path, target: Path, *, overwrite: bool) -> None:
        self.context.rename(self.path(source), self.path(target), self.options[overwrite])

    def renaming(self, source: Path, target: Path) -> Any:
        """Return a rename to a free name as a Callable of Java's: threads of Python's are too slow to meet in one."""
        invoke = self.jvm.java.lang.invoke
        of = self.jvm.java.lang.Class.forName
        path, options = of("org.apache.hadoop.fs.Path"), self.options[False]
        types = self.jvm.java.lang.reflect.Array.newInstance(of("java.lang.Class"), 3)
        types[0], types[1], types[2] = path, path, options.getClass()
        method = self.context.getClass().getMethod("rename", types)
        arguments = self.jvm.java.lang.reflect.Array.newInstance(of("java.lang.Object"), 4)
        arguments[0], arguments[1], arguments[2] = self.context, self.path(source), self.path(target)
        arguments[3] = options
        handle = invoke.MethodHandles.publicLookup().unreflect(method).asFixedArity()
        bound = invoke.MethodHandles.insertArguments(handle, 0, arguments)
        return invoke.MethodHandleProxies.asInterfaceInstance(of("java.util.concurrent.Callable"), bound)


def outcome(future: Any) -> str:
    try:
        future.get()
    except Py4JJavaError as error:
        return str(error.java_exception.getCause().getClass().getSimpleName())
    return "won"


@pytest.fixture
def files(spark: SparkSession) -> Files:
    return Files(spark)


def failure(call: Callable[[], object]) -> str:
    with pytest.raises(Py4JJavaError) as caught:
        call()
    return str(caught.value.java_exception.getClass().getSimpleName())


def test_these_classes_serve_local_paths(files: Files) -> None:
    assert files.system.getClass().getName() == "sessionlake.local.LocalFiles"
    assert files.context.getDefaultFileSystem().getClass().getName() == "sessionlake.local.LocalContext"


def test_of_many_renames_to_one_free_name_one_succeeds(files: Files, tmp_path: Path) -> None:
    writers = 4
    concurrent = files.jvm.java.util.concurrent
    pool = concurrent.Executors.newFixedThreadPool(writers)
    for turn in range(ROUNDS):
        target = tmp_path / f"{turn}.json"
        sources = [tmp_path / f".{turn}.{i}.tmp" for i in range(writers)]
        renames = files.jvm.java.util.ArrayList()
        for source in sources:
            files.write(source, source.name)
            renames.add(files.renaming(source, target))
        became = [outcome(future) for future in pool.invokeAll(renames)]
        assert sorted(became) == ["FileAlreadyExistsException"] * (writers - 1) + ["won"]
        assert files.read(target) == sources[became.index("won")].name
        assert [source.exists() for source in sources] == [text != "won" for text in became]
    pool.shutdown()


def test_a_replaced_file_is_never_missing(files: Files, tmp_path: Path) -> None:
    target, done, missing = tmp_path / "last", threading.Event(), []

    def watch() -> None:
        while not done.is_set():
            if not target.exists():
                missing.append(1)

    files.write(target, "0")
    watcher = threading.Thread(target=watch)
    watcher.start()
    for turn in range(ROUNDS):
        files.write(tmp_path / "next", str(turn))
        files.rename(tmp_path / "next", target, overwrite=True)
    done.set()
    watcher.join()
    assert (missing, files.read(target)) == ([], str(ROUNDS - 1))


def test_renames_fail_as_hadoops_do(files: Files, tmp_path: Path) -> None:
    files.write(tmp_path / "a", "a")
    files.write(tmp_path / "b", "b")
    (tmp_path / "folder").mkdir()
    files.write(tmp_path / "folder" / "c", "c")
    fails = [
        lambda: files.rename(tmp_path / "a", tmp_path / "b", overwrite=False),
        lambda: files.rename(tmp_path / "gone", tmp_path / "new", overwrite=False),
        lambda: files.rename(tmp_path / "a", tmp_path / "gone" / "new", overwrite=False),
        lambda: files.rename(tmp_path / "a", tmp_path / "folder", overwrite=True),
    ]
    assert [failure(call) for call in fails] == [
        "FileAlreadyExistsException",
        "FileNotFoundException",
        "FileNotFoundException",
        "IOException",
    ]
    assert (files.read(tmp_path / "a"), files.read(tmp_path / "b")) == ("a", "b")
    files.rename(tmp_path / "folder", tmp_path / "moved", overwrite=False)
    assert files.read(tmp_path / "moved" / "c") == "c"


def test_checksums_go_with_their_files_and_are_compared(files: Files, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    files.write(target, "older")
    files.write(source, "newer")
    files.rename(source, target, overwrite=True)
    assert files.read(target) == "newer"
    assert sorted(file.name for file in tmp_path.iterdir()) == [".target.crc", "target"]
    target.write_text("nEwer")
    assert failure(lambda: files.read(target)) == "ChecksumException"
    files.system.delete(files.path(target), False)
    assert list(tmp_path.iterdir()) == []


def test_permissions_are_those_asked_for(files: Files, tmp_path: Path) -> None:
    permission = files.jvm.org.apache.hadoop.fs.permission.FsPermission

    def mode_after(text: str) -> str:
        files.system.setPermission(files.path(tmp_path / "file"), permission(text))
        return stat.filemode((tmp_path / "file").stat().st_mode)

    files.write(tmp_path / "file", "")
    assert stat.filemode((tmp_path / "file").stat().st_mode) == "-rw-r--r--"
    assert [mode_after(text) for text in ("600", "751", "000")] == ["-rw-------", "-rwxr-x--x", "----------"]
    files.system.mkdirs(files.path(tmp_path / "shared"), permission("1777"))
    files.system.setPermission(files.path(tmp_path / "shared"), permission("1777"))
    assert stat.filemode((tmp_path / "shared").stat().st_mode) == "drwxrwxrwt"


def test_links_are_seen_as_links(files: Files, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("text")
    link.symlink_to(target)
    status = files.context.getFileLinkStatus(files.path(link))
    assert (status.isSymlink(), status.getSymlink().toUri().getPath()) == (True, str(target))
    assert not files.context.getFileLinkStatus(files.path(target)).isSymlink()
    assert files.read(link) == "text"
    files.system.delete(files.path(link), False)
    assert (link.is_symlink(), target.read_text()) == (False, "text")
