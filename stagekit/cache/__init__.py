"""The disk cache: compiled kernels kept between processes, as data that can be checked, never as pickles.

store         which folder it is; named entries in it: published at once or not at all, checked when read, the oldest dropped
artifacts     an `Artifact` as bytes and back
keys          what every key contains, the versions of all that shapes code; reading or making what a key names

It knows the data of the ground floor only; `jit/compilation.py` decides what is kept under which key.
"""

from stagekit.cache.store import Entry, Refused, Store, entry_name, folder_in_use, open_store

__all__ = ["Entry", "Refused", "Store", "entry_name", "folder_in_use", "open_store"]
