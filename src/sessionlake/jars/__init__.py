"""The jars that Spark does not ship: pinned by hash, fetched on first use, kept in the user's cache directory.

Nothing here imports Spark: code that only needs the path of the jars must not wait for it.
"""

from sessionlake.jars.cache import JARS_VARIABLE, cached, copy_to, find_jars
from sessionlake.jars.lists import LISTS, JarList, load_list

__all__ = ["JARS_VARIABLE", "LISTS", "JarList", "cached", "copy_to", "find_jars", "load_list"]
