# program(int64(-1), int64(8), int64(0))
class Box:
    def __init__(self, x, y):
        self.x = x
        self.y = y

    def swap(self):
        self.x, self.y = self.y, self.x

    def __getitem__(self, index):
        return (self.x, self.y)[index]

def program(a, b, c):
    box = Box(0, 1)
    for i2 in range(1):
        for eachi3 in box:
            for i2 in range(1, i2, -1):
                box.swap()
    return (0, 0, 0, 0, 0, 1, 0, 0, box.y, 0, 1, 0)
