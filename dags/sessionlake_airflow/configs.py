"""Which configs a run may name: those of one directory. A config decides what is read, written and imported as the driver's user."""

import os
from pathlib import Path

PROJECT_FILE = "project.toml"
HOME = Path(__file__).resolve().parents[2]


def configs_directory() -> Path:
    """Return the directory of the configs: SESSIONLAKE_CONFIGS, else where SESSIONLAKE_CONFIG lies, else the demo's."""
    named = os.environ.get("SESSIONLAKE_CONFIGS")
    return Path(named).absolute() if named else _default_path().parent


def config_names() -> list[str]:
    """Return the names of the configs that this machine sees, sorted; of none where the directory is the driver's alone."""
    try:
        return sorted(file.name for file in configs_directory().iterdir() if file.suffix == ".toml")
    except OSError:
        return []


def default_config() -> str:
    """Return the config of a run that names none: its name where it lies in the directory, else its path."""
    path = _default_path()
    return path.name if path.parent == configs_directory() else str(path)


def confined(config: str) -> str:
    """Return the path of a config that a run names, by name or path; ValueError unless it lies in the directory itself.

    Not below it, where others may put files (the demo's events); a link may not lead out of it.
    """
    directory = configs_directory()
    # Without the directories of `..`, and links followed: the first tells a name, the second where it leads.
    path = Path(os.path.normpath(directory / config))
    within = path.resolve().is_relative_to(directory.resolve())
    if path.parent.resolve() != directory.resolve() or path.suffix != ".toml" or not within:
        raise ValueError(f"config: {config!r} is no .toml file in {str(directory)!r}; {_advice()}")
    return str(path)


def require_config(path: str) -> None:
    """Raise ValueError unless the config is there: for a driver on this machine, which would find out only after Spark's start."""
    if not Path(path).exists():
        raise ValueError(f"config: {path!r} is not there; {_advice()}")


def _advice() -> str:
    known = ", ".join(config_names()) or "none is there"
    return f"name one of those ({known}), or set SESSIONLAKE_CONFIG and SESSIONLAKE_CONFIGS"


def _default_path() -> Path:
    return Path(os.environ.get("SESSIONLAKE_CONFIG") or HOME / "demo" / "commits.toml").absolute()
