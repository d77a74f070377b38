"""The disk cache: compiled kernels kept between processes, as data that can be checked, never as pickles.

folder        where it is, and whether it may be trusted
store         named entries in that folder: published at once or not at all, checked when read, the oldest dropped
plain         dataclasses as JSON and back
artifacts     an `Artifact` as bytes and back
codes         machine code that follows from a text
versions      what every key contains: the versions of all that shapes code

It knows the data of the ground floor only; `jit/caching.py` decides what is kept under which key.
"""

from stagekit.cache.folder import Refused, folder_in_use
from stagekit.cache.store import Entry, Store, entry_name, open_store

__all__ = ["Entry", "Refused", "Store", "entry_name", "folder_in_use", "open_store"]
