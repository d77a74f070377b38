import sys

kept = {name: sys.modules.pop(name) for name in [*sys.modules] if name == "torch" or name.startswith("stagekit.torch")}
sys.modules["torch"] = None  # as where it is not installed
try:
    import stagekit.torch
finally:
    del sys.modules["torch"]
    sys.modules |= kept
