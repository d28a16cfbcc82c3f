"""The lists of jars, each a TOML file: Maven coordinates, bytes and SHA-256 of every jar."""

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

from sessionlake.errors import ConfigError

LISTS = ("spark", "s3", "adls", "gcs", "openlineage")
"""The lists of this package; `spark` has every pipeline's jars."""
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Jar:
    """A jar of a Maven repository."""

    name: str
    """organisation:name:revision, and :classifier if it has one."""
    bytes: int
    sha256: str

    @property
    def file(self) -> str:
        """The name of its file, which includes the organisation, since two may name a jar alike."""
        organisation, rest = self.name.split(":", 1)
        return f"{organisation}_{rest.replace(':', '-')}.jar"


@dataclass(frozen=True)
class JarList:
    """A list of jars."""

    name: str
    jars: tuple[Jar, ...]
    sources: tuple[Path, ...] = ()
    """Scala classes compiled into a separate jar, with Spark's own compiler."""

    @property
    def compiled(self) -> str | None:
        """The jar's file name for `sources`; it contains their hash, so changed sources are compiled again."""
        if not self.sources:
            return None
        content = b"".join(source.read_bytes() for source in self.sources)
        names = "-".join(source.stem for source in self.sources)
        return f"sessionlake_{names}-{hashlib.sha256(content).hexdigest()[:8]}.jar"

    @property
    def files(self) -> list[str]:
        """The names of all files, sorted."""
        return sorted([*(jar.file for jar in self.jars), *([self.compiled] if self.compiled else [])])

    @property
    def folder(self) -> str:
        """A folder name for exactly these jars: another version of the list has another name."""
        content = "\n".join(sorted([*(f"{jar.file} {jar.sha256}" for jar in self.jars), self.compiled or ""]))
        return f"{self.name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"

    def complete(self, folder: Path) -> bool:
        """Return whether the folder has all files in their full length; hashes are compared when a jar is fetched."""
        try:
            sizes = {file.name: file.stat().st_size for file in folder.glob("*.jar")}
        except OSError:
            return False
        return sizes.keys() == set(self.files) and all(sizes[jar.file] == jar.bytes for jar in self.jars)


def load_list(name: str) -> JarList:
    """Return a list of the package, or the list in such a file; ConfigError if there is none."""
    file = _HERE / f"{name}.toml" if name in LISTS else Path(name)
    try:
        content = tomllib.loads(file.read_text())
        jars = tuple(Jar(**entry) for entry in content["jars"])
    except OSError as error:
        raise ConfigError(
            f"jars: {name!r} is no list of jars ({error.strerror}); pass one of {', '.join(LISTS)}, or a file"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"jars: {name!r} is no list of jars ({error}); see {_HERE / 'spark.toml'} for one") from error
    sources = tuple(file.with_name(source) for source in content.get("sources", []))
    return JarList(name if name in LISTS else file.parent.name, jars, sources)
