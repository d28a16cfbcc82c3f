"""Users' modules by directory: a module `shop` of one pipeline.code is not the `shop` of another one, also in one process.

Python knows a module by its name alone, so the first one loaded would serve all pipelines of a process. Here a module of a directory
is imported under a name that begins with a hash of the directory, and `import` within it finds the modules of the same directory. Its
`__name__` stays `shop`: loggers have it, and so have pickles, which a directory that moved or an earlier version has to read. Whoever
asks for `shop` by that name, as pickle does, meets a `_StandIn`, which answers as the module of the directory whose code asks.
"""

import builtins
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

_PREFIX = "_sessionlake_code_"
_known: dict[str, "CodeDirectory"] = {}
"""The directories of this process, by the name of their package."""


def imported(name: str, directory: str | None) -> ModuleType:
    """Return a module that is installed or lies in a directory, if there is one; raise whatever the import raises.

    ImportError if it is in both: the file beside the config would not be the one that runs.
    """
    if directory is None:
        importlib.import_module(name)
        return _elsewhere(name)
    path = os.path.realpath(directory)
    package = _PREFIX + hashlib.sha256(path.encode()).hexdigest()[:16]
    of = _known.setdefault(package, CodeDirectory(path, package))
    if package not in sys.modules:
        made: Any = ModuleType(package)
        made.__path__ = [path]
        sys.modules[package] = made
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    return of.module(name) if of.asked_for(name) else imported(name, None)


class CodeDirectory:
    """A directory of users' modules. Its modules are those of a package that has no name of the user's."""

    def __init__(self, path: str, package: str) -> None:
        self.path, self.package = path, package
        self.builtins = vars(builtins) | {"__import__": self.import_statement}
        """Those of its modules. Python takes `__import__` from them for each `import`, also for one in a function."""
        self._decided: dict[str, bool] = {}

    def module(self, name: str) -> ModuleType:
        """Return a module of the directory; ModuleNotFoundError if there is none."""
        try:
            return importlib.import_module(f"{self.package}.{name}")
        except ModuleNotFoundError as error:
            error.msg = error.msg.replace(f"{self.package}.", "")
            error.args = (error.msg,)
            error.name = error.name and error.name.removeprefix(f"{self.package}.")
            raise

    def loaded(self, name: str) -> ModuleType | None:
        """Return a module of the directory if it is imported already."""
        return sys.modules.get(f"{self.package}.{name}")

    def has(self, name: str) -> bool:
        """Say if the directory has a module, and nothing that is installed has the name."""
        try:
            return self.asked_for(name)
        except ImportError:
            return False

    def may_be(self, installed: ModuleSpec | None) -> bool:
        """Say if nothing is found by Python alone, or a module of the directory: a program may have it on its path, as tests do."""
        if installed is None:
            return True
        places = [installed.origin] if installed.has_location else installed.submodule_search_locations or ()
        return any(os.path.realpath(place).startswith(f"{self.path}/") for place in places if place)

    def asked_for(self, name: str) -> bool:
        """Say if the module that code of the directory means by a name lies there; ImportError if it is installed, too."""
        top = name.partition(".")[0]
        if top not in self._decided:
            own = None if top in sys.stdlib_module_names else PathFinder.find_spec(top, [self.path])
            if own is None and not _is_ordinary(top):
                return False  # it may come yet
            self._decided[top] = own is not None and self._is_meant(top, own)
        return self._decided[top]

    def _is_meant(self, top: str, own: ModuleSpec) -> bool:
        already = sys.modules.get(top)
        if own.origin and _is_ordinary(top) and _is_same(own.origin, getattr(already, "__file__", None)):
            return False  # the program has imported this very file by itself, as tests do
        # Workers always have the current directory on their path, drivers not.
        installed = _installed(top, with_current=False)
        if installed is None or _is_same(own.origin, installed.origin):
            return True
        if not installed.origin:  # several places may share such a package, and one of them be a folder of data
            places = own.submodule_search_locations or ()
            return own.origin is not None or any(any(Path(place).rglob("*.py")) for place in places)
        if not own.origin:  # a folder without a module of its own
            return False
        raise ImportError(
            f"{top!r} is {own.origin} in pipeline.code and {installed.origin} in an installed package; rename the one in pipeline.code"
        )

    def import_statement(
        self,
        name: str,
        globals: dict[str, Any] | None = None,  # noqa: A002 (the names of __import__)
        locals: dict[str, Any] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Import what a statement of the directory's code names, as `__import__` does."""
        if level:
            full = importlib.util.resolve_name("." * level + name, (globals or {}).get("__package__") or "")
            name = full.removeprefix(self.package).removeprefix(".")
        elif not self.asked_for(name):
            found = builtins.__import__(name, globals, locals, fromlist or (), level)
            return _elsewhere(name if fromlist else name.partition(".")[0]) if isinstance(found, _StandIn) else found
        module = self.module(name) if name else sys.modules[self.package]
        if not fromlist:
            return module if level else self.module(name.partition(".")[0])
        if hasattr(module, "__path__"):
            self._import_parts(module, name, fromlist)
        return module

    def _import_parts(self, module: ModuleType, name: str, parts: Iterable[str]) -> None:
        """Import the modules of a package that a `from` names."""
        for part in parts:
            if part == "*":
                self._import_parts(module, name, getattr(module, "__all__", ()))
            elif not hasattr(module, part):
                full = f"{name}.{part}" if name else part
                try:
                    self.module(full)
                except ModuleNotFoundError as error:
                    if error.name != full:
                        raise


class _Finder:
    """Finds modules of known directories, by their full names, and by plain ones for code that does not import by a statement."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, _, plain = name.partition(".")
        if top in _known:
            spec = PathFinder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None and spec.origin is not None:
                spec.loader = _Loader(spec.loader, plain, _known[top])  # type: ignore[assignment]
            elif spec is not None:  # a folder without a module of its own, which no loader sees
                _let_stand_in(plain)
            return spec
        asking = _asking()
        those = [asking] if asking else list(_known.values())
        having = [of for of in those if of.has(name)]
        if len(having) != 1 or not (asking or _is_stand_in(top) or _installed(top) is None):
            return None
        if path is not None and PathFinder.find_spec(name, path) is None:  # its package lacks it
            return None
        return ModuleSpec(name, _StandInLoader(having[0]))  # type: ignore[arg-type]


class _Loader:
    """Runs a module of a directory under its plain name, with the directory's builtins."""

    def __init__(self, loader: Any, plain: str, of: CodeDirectory) -> None:
        self._loader, self._plain, self._of = loader, plain, of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        _let_stand_in(self._plain)
        code: CodeType | None = self._loader.get_code(f"{self._of.package}.{self._plain}")
        vars(module).update(__name__=self._plain, __builtins__=self._of.builtins)
        if code is None:  # it is no Python
            self._loader.exec_module(module)
        else:
            exec(code, vars(module))  # noqa: S102 (the author of the config names what runs)


class _StandInLoader:
    """Imports a module of a directory for whoever asks for the plain name, and puts a stand-in there."""

    def __init__(self, of: CodeDirectory) -> None:
        self._of = of

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make a module, which nobody sees."""

    def exec_module(self, module: ModuleType) -> None:
        del sys.modules[module.__name__]
        _let_stand_in(module.__name__)
        self._of.module(module.__name__)


class _StandIn(ModuleType):
    """What a plain name means: the module of the directory whose code asks, or else of the only one that has it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        object.__setattr__(self, "_of", (name, sys.modules.get(name)))

    def __getattribute__(self, attribute: str) -> Any:
        name, before = object.__getattribute__(self, "_of")
        # Imports of a loaded module ask for this one. Whoever looks through all of `sys.modules` asks for others, and imports nothing.
        asking = _asking() if attribute == "__spec__" else None
        if asking is not None:
            if asking.has(name):
                asking.module(name)
            elif before is None:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return getattr(_meant(name, before), attribute)

    def __setattr__(self, attribute: str, value: object) -> None:
        if not isinstance(value, _StandIn):  # Python gives a package the modules in it, but it has the right ones
            setattr(_meant(*object.__getattribute__(self, "_of")), attribute, value)

    def __delattr__(self, attribute: str) -> None:
        delattr(_meant(*object.__getattribute__(self, "_of")), attribute)


def _let_stand_in(name: str) -> None:
    """Put a stand-in under a plain name."""
    if not _is_stand_in(name):
        sys.modules[name] = _StandIn(name)


def _meant(name: str, before: ModuleType | None) -> ModuleType:
    """Return the loaded module that is meant by a name here; `before` had the name before any directory."""
    asking = _asking()
    if asking is not None and asking.has(name):
        if (own := asking.loaded(name)) is None:
            raise AttributeError(f"module {name!r} of {asking.path!r} is not imported")
        return own
    if before is not None:
        return before
    installed = None if asking else _installed(name.partition(".")[0])
    found = {of: module for of in _known.values() if (module := of.loaded(name)) is not None}
    those = [module for of, module in found.items() if of.may_be(installed)]
    if asking is None and len(those) == 1:
        return those[0]
    places = ", ".join(str(getattr(module, "__file__", None)) for module in found.values())
    raise AttributeError(f"modules {name!r} of several places are meant: {places}; rename all but one")


def _asking() -> CodeDirectory | None:
    """Return the directory of the innermost call that is its code."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 (documented, of CPython)
    while frame is not None:
        of = getattr(frame.f_builtins.get("__import__"), "__self__", None)
        if isinstance(of, CodeDirectory):
            return of
        frame = frame.f_back
    return None


def _elsewhere(name: str) -> ModuleType:
    """Return the imported module of a name that is in no directory; ModuleNotFoundError if there is none."""
    module = sys.modules[name]
    if isinstance(module, _StandIn):
        _, before = object.__getattribute__(module, "_of")
        if before is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return before
    return module


def _is_stand_in(name: str) -> bool:
    return isinstance(sys.modules.get(name), _StandIn)


def _is_ordinary(name: str) -> bool:
    return name in sys.modules and not _is_stand_in(name)


def _installed(top: str, *, with_current: bool = True) -> ModuleSpec | None:
    """Return what Python finds under a name outside of all directories of code; the current directory counts if asked."""
    current = os.path.realpath(os.curdir)
    path = [entry for entry in sys.path if with_current or os.path.realpath(entry) != current]
    for finder in sys.meta_path:
        find = None if isinstance(finder, _Finder) else getattr(finder, "find_spec", None)
        spec = find and find(top, path if finder is PathFinder else None)
        if spec is not None:
            return spec
    return None


def _is_same(one: str | None, two: str | None) -> bool:
    return one is not None and two is not None and os.path.realpath(one) == os.path.realpath(two)
