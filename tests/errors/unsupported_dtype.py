import numpy as np

import stagekit as sk

sk.cuda.empty(8, "datetime64[s]")
