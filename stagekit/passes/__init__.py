"""From IR to IR: `pipeline` lists the passes of each target in order, `manager` runs them, every other module is one pass."""
