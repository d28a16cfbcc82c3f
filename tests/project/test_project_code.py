"""Pipelines of a project whose code lies in directories of their own, with modules of the same names."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from sessionlake.cli import main
from sessionlake.config.load import load_config
from sessionlake.serve.queries import query_tables
from tests.project.project_support import PROJECT, SOURCE, call, run, write_project

FILES = 10
SHOP = """\
import helpers
from sessionlake.operators.process import Processor


class F(Processor):
    def process(self, key, row, timers, state):
        import lazy

        yield {{"who": "{who}" + helpers.WHO + lazy.WHO}}


class Most:
    columns = "v"
    value_type = "string"

    def reducer(self, left, right):
        return max(left, right)

    def result(self, aggregate):
        return f"{who}{{helpers.WHO}} {{aggregate}}"


def on_rows(rows, delivery):
    with open({calls!r}, "a") as calls:
        calls.write(f"{who}{{helpers.WHO}} {{delivery.pipeline}} {{rows.num_rows}}\\n")
"""
PROCESS = '[process]\nclass = "shop:F"\ncolumns = ["v"]\nretention = "10 days"\n[process.output]\nwho = "string"\n'
AT_ONCE = SOURCE.replace("[event]", "max_files_per_batch = 100\n[event]")
GROUP = '[group]\n[aggregates]\nmost = "shop:Most"\n[sink.python]\ncall = "shop:on_rows"\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a project with two directories of code, and in each a processor, an aggregate and a function of the same names."""
    texts = {
        f"{kind}_{who}": f'[pipeline]\ncode = "code_{who}"\n{text}'
        for kind, text in (("process", f"{SOURCE}{PROCESS}"), ("group", f"{AT_ONCE}{GROUP}"))
        for who in "ab"
    }
    root = write_project(tmp_path / "project", FILES, PROJECT, texts)
    for who in "ab":
        code = root / f"code_{who}"
        code.mkdir()
        (code / "shop.py").write_text(SHOP.format(who=who, calls=str(root / "calls")))
        for name in ("helpers", "lazy"):
            (code / f"{name}.py").write_text(f"WHO = {who!r}\n")
    return root


@pytest.mark.slow
def test_modules_of_one_name_do_the_work_of_their_own_pipelines(root: Path) -> None:
    call("check", str(root))
    assert run(root, "--once").returncode == 0
    for who in "ab":
        processed = load_config(root / f"process_{who}.toml")
        assert query_tables(processed, "select count(*) from batches", 10)[1] == [(FILES,)]
        found = query_tables(processed, "select who, count(*) from outputs_live group by 1", 10)[1]
        assert found == [(who * 3, FILES * 10)]
        (most,) = zip(
            *query_tables(load_config(root / f"group_{who}.toml"), "select most from groups_live", 10)[1], strict=True
        )
        assert {*most} == {f"{who}{who} {value}" for value in range(5, 10)}
    done = CliRunner().invoke(main, ["publish", str(root), "--once"])
    assert done.exit_code == 0, done.output
    assert sorted((root / "calls").read_text().splitlines()) == ["aa group_a 5", "bb group_b 5"]
