"""The jars that Spark does not ship: pinned by hash, fetched on first use, kept in the user's cache directory.

Nothing here imports Spark, so that what asks for the jars' place doesn't wait for it.
"""

from sessionlake.jars.cache import JARS_VARIABLE, cached, copy_to, find_jars
from sessionlake.jars.lists import LISTS, JarList, load_list

__all__ = ["JARS_VARIABLE", "LISTS", "JarList", "cached", "copy_to", "find_jars", "load_list"]
