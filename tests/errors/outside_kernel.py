import numpy as np

import stagekit as sk

sk.load(np.zeros(8, np.float32))
