"""The list of expressions that a rule may have, beside the classes that Spark has."""

import zipfile
from pathlib import Path

import pyspark

from sessionlake.jobs.expire.allowed import ALLOWED

_EXPRESSIONS = "org/apache/spark/sql/catalyst/expressions/"
REACHING = (
    "XPath",
    "Xml",
    "Avro",
    "Protobuf",
    "Reflect",
    "UDF",
    "UserDefined",
    "InputFile",
    "ApplyFunction",
    "CurrentUser",
    "Stderr",
)
"""Signs of expressions that call code of others, open files or addresses, or tell of the machine."""


def classes() -> set[str]:
    """Return the names of Spark's expressions and what lies beside them."""
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-catalyst_*.jar")
    with zipfile.ZipFile(jar) as archive:
        found = [name for name in archive.namelist() if name.startswith(_EXPRESSIONS) and name.endswith(".class")]
    return {name.rpartition("/")[2].removesuffix(".class").rstrip("$") for name in found}


def test_every_listed_expression_is_one_of_spark() -> None:
    assert sorted(ALLOWED - classes()) == []


def test_no_listed_expression_reaches_out() -> None:
    assert [name for name in sorted(ALLOWED) if any(sign in name for sign in REACHING)] == []
    assert {sign for sign in REACHING if any(sign in name for name in classes())} == set(REACHING)
