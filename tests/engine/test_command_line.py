"""What may stand on the command line of the driver's Java, which every user of the machine sees, and how its errors come out."""

import subprocess
import sys

from pyspark import SparkConf

from sessionlake.engine.java import without_secrets


def test_settings_that_look_secret_are_left_out() -> None:
    plain = {"spark.driver.memory": "1g", "spark.jars": "/a.jar", "spark.authenticate": "true"}
    secret = [
        "spark.openlineage.transport.auth.apiKey",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.authenticate.secret",
        "spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net",
        "spark.ssl.keyPassword",
    ]
    conf = SparkConf(loadDefaults=False).setAll([*plain.items(), *((name, "x") for name in secret)])
    assert dict(without_secrets(conf).getAll()) == plain
    assert {name for name, _ in conf.getAll()} == {*plain, *secret}


def test_java_need_not_wait_if_nobody_reads_its_errors() -> None:
    """A thread that ended with its first write would leave a pipe that fills, and Java would stand still in a line of its log."""
    script = (
        "import io, os\n"
        "from sessionlake.engine.java import _forward\n"
        "theirs, ours = os.pipe()\n"
        "os.close(theirs)\n"
        "os.dup2(ours, 2)\n"
        "lines = io.BytesIO(b'WARN a line\\n' * 1000)\n"
        "_forward(lines)\n"
        "print(lines.read())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "b''\n")
