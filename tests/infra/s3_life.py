"""A pipeline's life on S3, in a process of its own: Spark must start with the settings of SPARK_CONF_DIR. Prints one line of JSON."""

import json
import sys
import time
from pathlib import Path

from py4j.protocol import Py4JJavaError

from sessionlake.cli import main
from sessionlake.config.load import load_config
from sessionlake.engine.spark import build_session
from sessionlake.reading import read_sessions

MINUTE = 60


def events(root: Path, name: str, rows: list[tuple[str, int, int]]) -> None:
    lines = [json.dumps({"user": user, "at": at * MINUTE, "price": price}) for user, at, price in rows]
    temporary = root / f".{name}"
    temporary.write_text("\n".join(lines))
    temporary.rename(root / "events" / name)


def log_store(uri: str) -> dict[str, object]:
    """Write one commit twice, as two drivers would, through the class that Delta is configured with."""
    spark = build_session("s3")
    jvm, conf = spark._jvm, spark._jsc.hadoopConfiguration()
    chosen = spark.conf.get("spark.delta.logStore.s3a.impl")
    kind = jvm.java.lang.Class.forName(chosen, True, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    parameters = spark.sparkContext._gateway.new_array(jvm.java.lang.Class, 1)
    parameters[0] = conf.getClass()
    arguments = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = conf
    store = kind.getConstructor(parameters).newInstance(arguments)
    path = jvm.org.apache.hadoop.fs.Path(f"{uri}/00000000000000000001.json")

    def write(text: str) -> str:
        try:
            store.write(path, jvm.java.util.List.of(text).iterator(), False, conf)
        except Py4JJavaError as error:
            return error.java_exception.getClass().getName()
        return "written"

    outcome = [write("first"), write("second"), write("first")]
    return {"class": chosen, "outcome": outcome, "content": list(store.read(path, conf))}


def life(root: Path) -> dict[str, object]:
    config = str(root / "pipeline.toml")

    def cli(*words: str) -> None:
        started = time.monotonic()
        try:
            main([words[0], config, *words[1:]], standalone_mode=False)
        except SystemExit as end:
            if end.code:
                raise
        sys.stderr.write(f"s3_life: {words[0]} took {time.monotonic() - started:.1f} s\n")

    events(root, "1.json", [("ann", 0, 5), ("ann", 10, 7), ("bob", 0, 1), ("eve", 3, 9), ("zoe", 200, 2)])
    cli("run", "--once")
    events(root, "2.json", [("ann", 20, 1), ("bob", 400, 4), ("zoe", 230, 3)])  # ann's is late by now
    cli("run", "--once")
    cli("reprocess-late", "--run-id", "late")
    cli("compact", "--run-id", "compact")
    events(root, "3.json", [("bob", 410, 8)])
    cli("run", "--once")
    cli("status")
    keys = Path(config).with_name("keys.txt")
    keys.touch(0o600)
    keys.write_text("eve\n")
    cli("forget", "--keys-file", str(keys), "--run-id", "forget")
    loaded = load_config(config)
    minutes = [f"unix_seconds({column}) div {MINUTE}" for column in ("session_start", "session_end")]
    rows = read_sessions(build_session("s3"), loaded).selectExpr("session_key", *minutes, "total").collect()
    found = sorted(list(row) for row in rows)
    return {"sessions": found, "log_store": log_store(f"{loaded.pipeline.warehouse}/_log_store")}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(life(Path(sys.argv[1]))) + "\n")
