"""Names of Java's packages and classes, asked for once.

If Python reads `jvm.org.apache.spark.sql.Column`, py4j sends each part to Java, every time, and Java looks through all
jars for a class called `org`, then `org.apache`, and so on. That is more than a third of the stream's thread time in a small batch.
"""

from typing import Any

from py4j.java_gateway import JavaClass, JavaPackage, JVMView


def remember_names() -> None:
    """Let py4j's objects remember the packages and classes that were read from them; a second call does nothing."""
    for holder in (JVMView, JavaPackage):
        if not hasattr(holder, "look_up"):
            holder.look_up = holder.__getattr__
            holder.__getattr__ = _remembering


def _remembering(holder: Any, name: str) -> Any:
    # Python calls this only for names that the object's own dictionary doesn't have.
    found = holder.look_up(name)
    # py4j takes a name for a package if no class has it. Such a name may be a class later, once its jar is added.
    if isinstance(found, JavaClass) or (isinstance(found, JavaPackage) and name.islower()):
        holder.__dict__[name] = found
    return found
