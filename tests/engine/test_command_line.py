"""What may stand on the command line of the driver's Java, which every user of the machine sees."""

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
