"""Names of Java's packages and classes, asked for once.

Where Python reads `jvm.org.apache.spark.sql.Column`, py4j sends each part to Java, every time, and Java looks through all
jars for a class called `org`, then `org.apache`, and so on: more than a third of what the stream's thread does in a small batch.
"""

from typing import Any

from py4j.java_gateway import JavaClass, JavaPackage, JVMView


def remember_names() -> None:
    """Let py4j keep the packages and classes it was asked for, for as long as the object they were asked of; idempotent."""
    for holder in (JVMView, JavaPackage):
        if not hasattr(holder, "look_up"):
            holder.look_up = holder.__getattr__
            holder.__getattr__ = _remembering


def _remembering(holder: Any, name: str) -> Any:
    # Python calls this for what the object's own dictionary doesn't hold.
    found = holder.look_up(name)
    # What py4j takes for a package, since there is no such class, may be a class later: one of a jar that comes then.
    if isinstance(found, JavaClass) or (isinstance(found, JavaPackage) and name.islower()):
        holder.__dict__[name] = found
    return found
